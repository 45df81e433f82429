//! Objects with random values in every field, for any type that can be decoded from JSON: a deserializer that makes the values
//! up. So a new field of Kubernetes needs no change here.

use std::fmt;

use pod_index_test_support::dice::Dice;
use serde::de::value::{BorrowedStrDeserializer, StringDeserializer};
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor,
};
use serde::forward_to_deserialize_any;

/// A random object. Of the optional fields, about `percent` per cent are there. No value is zero or empty.
pub fn random<T: DeserializeOwned>(seed: u64, percent: u64) -> T {
    let mut dice = Dice(seed);
    T::deserialize(Random { dice: &mut dice, percent, text: Text::Any }).expect("a type that takes any value")
}

#[derive(Debug)]
pub struct Refused(String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

impl de::Error for Refused {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

/// What a string has to look like.
#[derive(Clone, Copy)]
enum Text {
    Any,
    Time,
}

struct Random<'a> {
    dice: &'a mut Dice,
    percent: u64,
    text: Text,
}

impl Random<'_> {
    fn again(&mut self) -> Random<'_> {
        Random { dice: self.dice, percent: self.percent, text: Text::Any }
    }

    fn word(&mut self) -> String {
        let letters = ["a", "Z", "7", "-", "ä", "\u{1f980}", "\"", "\\", "\n", "\u{7f}", "{", "'"];
        (0..=self.dice.roll(6)).map(|_| self.dice.pick(&letters)).collect()
    }
}

impl<'de> Deserializer<'de> for Random<'_> {
    type Error = Refused;

    /// Only types that take a number as well as a string ask for anything.
    fn deserialize_any<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Refused> {
        if self.dice.roll(2) == 0 {
            return visitor.visit_string(self.word());
        }
        self.deserialize_i32(visitor)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_bool(true)
    }

    fn deserialize_i32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        let numbers = [1, -1, 127, 128, i32::MAX, i32::MIN, 8080];
        visitor.visit_i32(numbers[self.dice.index(numbers.len())])
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        let numbers = [1, -1, 1 << 40, i64::MAX, i64::MIN];
        visitor.visit_i64(numbers[self.dice.index(numbers.len())])
    }

    fn deserialize_string<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Refused> {
        match self.text {
            Text::Any => visitor.visit_string(self.word()),
            Text::Time => {
                let seconds = i64::try_from(self.dice.roll(1 << 32)).unwrap() - (1 << 31);
                let time = k8s_openapi::jiff::Timestamp::from_second(seconds).unwrap();
                visitor.visit_string(time.to_string())
            }
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.deserialize_string(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        mut self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        match name {
            "Time" => visitor.visit_newtype_struct(Random { text: Text::Time, ..self }),
            "FieldsV1" => {
                let word = self.word();
                let fields = serde_json::json!({"f:metadata": {"f:labels": {".": {}, word: {}}}});
                let decoded = visitor.visit_newtype_struct(fields);
                decoded.map_err(|error| Refused(error.to_string()))
            }
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        let left = 1 + self.dice.roll(2);
        visitor.visit_seq(Elements { random: self, left })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        let left = 1 + self.dice.roll(2);
        visitor.visit_map(Elements { random: self, left })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        let of_json = ["apiVersion", "kind"];
        let is_root = fields == ["apiVersion", "kind", "metadata", "spec", "status"];
        let mut chosen: Vec<_> =
            fields.iter().filter(|field| !(is_root && of_json.contains(field))).copied().collect();
        chosen.retain(|_| self.dice.roll(100) < self.percent);
        visitor.visit_map(Chosen { random: self, fields: chosen })
    }

    forward_to_deserialize_any! {
        i8 i16 u8 u16 u32 u64 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct enum identifier ignored_any
    }
}

struct Elements<'a> {
    random: Random<'a>,
    left: u64,
}

impl<'de> SeqAccess<'de> for Elements<'_> {
    type Error = Refused;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Refused> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(self.random.again()).map(Some)
    }
}

impl<'de> MapAccess<'de> for Elements<'_> {
    type Error = Refused;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Refused> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let key: StringDeserializer<Refused> = self.random.word().into_deserializer();
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Refused> {
        seed.deserialize(self.random.again())
    }
}

struct Chosen<'a> {
    random: Random<'a>,
    fields: Vec<&'static str>,
}

impl<'de> MapAccess<'de> for Chosen<'_> {
    type Error = Refused;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Refused> {
        let Some(field) = self.fields.last() else { return Ok(None) };
        seed.deserialize(BorrowedStrDeserializer::new(field)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Refused> {
        self.fields.pop();
        seed.deserialize(self.random.again())
    }
}
