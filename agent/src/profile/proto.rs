//! `profile.proto`, as far as a CPU profile needs it, written field by field: what it takes of protocol buffers is less than
//! a library for them.
//!
//! <https://github.com/google/pprof/blob/main/proto/profile.proto>

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A function that was being executed, and where in it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Frame {
    pub(super) name: String,
    pub(super) file: String,
    pub(super) line: u32,
}

/// A profile that is being written. Identities begin with 1; string 0 is the empty one.
pub(super) struct Profile {
    message: Message,
    strings: HashMap<String, u64>,
    functions: HashMap<(u64, u64), u64>,
    /// A location is where a thread was, in all functions that are inlined there.
    locations: HashMap<Vec<Frame>, u64>,
    /// Nanoseconds that a sample stands for.
    period: u64,
}

impl Profile {
    pub(super) fn new(frequency: i32, start: SystemTime, duration: Duration) -> Self {
        let period = 1_000_000_000 / u64::try_from(frequency).unwrap_or(1).max(1);
        let nanoseconds = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let mut profile = Self {
            message: Message::default(),
            strings: HashMap::new(),
            functions: HashMap::new(),
            locations: HashMap::new(),
            period,
        };
        profile.string("");
        let samples = profile.value_type("samples", "count");
        let cpu = profile.value_type("cpu", "nanoseconds");
        let message = &mut profile.message;
        message.message(1, &samples).message(1, &cpu).message(11, &cpu).number(12, period);
        message.number(9, nanoseconds(start.duration_since(UNIX_EPOCH).unwrap_or_default()));
        message.number(10, nanoseconds(duration));
        profile
    }

    /// A stack, the innermost frame first, that was seen `count` times on this thread.
    pub(super) fn add(
        &mut self,
        stack: impl IntoIterator<Item = impl IntoIterator<Item = Frame>>,
        thread: &str,
        count: u64,
    ) {
        let stack = stack.into_iter().map(|inlined| inlined.into_iter().collect::<Vec<_>>());
        let locations: Vec<u64> =
            stack.filter(|inlined| !inlined.is_empty()).map(|inlined| self.location(inlined)).collect();
        let mut label = Message::default();
        label.number(1, self.string("thread")).number(2, self.string(thread));
        let mut sample = Message::default();
        sample
            .numbers(1, &locations)
            .numbers(2, &[count, count.saturating_mul(self.period)])
            .message(3, &label);
        self.message.message(2, &sample);
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.message.0
    }

    fn location(&mut self, inlined: Vec<Frame>) -> u64 {
        if let Some(id) = self.locations.get(&inlined) {
            return *id;
        }
        let id = self.locations.len() as u64 + 1;
        let mut location = Message::default();
        location.number(1, id);
        for frame in &inlined {
            let mut line = Message::default();
            line.number(1, self.function(frame)).number(2, frame.line.into());
            location.message(4, &line);
        }
        self.message.message(4, &location);
        self.locations.insert(inlined, id);
        id
    }

    fn function(&mut self, frame: &Frame) -> u64 {
        let (name, file) = (self.string(&frame.name), self.string(&frame.file));
        let next = self.functions.len() as u64 + 1;
        let id = *self.functions.entry((name, file)).or_insert(next);
        if id == next {
            let mut function = Message::default();
            function.number(1, id).number(2, name).number(3, name).number(4, file);
            self.message.message(5, &function);
        }
        id
    }

    /// The number of a string in the table of strings, which is written as it grows.
    fn string(&mut self, text: &str) -> u64 {
        if let Some(number) = self.strings.get(text) {
            return *number;
        }
        let number = self.strings.len() as u64;
        self.strings.insert(text.to_owned(), number);
        self.message.bytes(6, text.as_bytes());
        number
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> Message {
        let mut message = Message::default();
        message.number(1, self.string(kind)).number(2, self.string(unit));
        message
    }
}

/// Fields in the wire form of protocol buffers, one after the other.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn number(&mut self, field: u64, number: u64) -> &mut Self {
        self.varint(field << 3);
        self.varint(number);
        self
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) -> &mut Self {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn message(&mut self, field: u64, message: &Message) -> &mut Self {
        self.bytes(field, &message.0)
    }

    /// Packed.
    fn numbers(&mut self, field: u64, numbers: &[u64]) -> &mut Self {
        let mut packed = Message::default();
        for number in numbers {
            packed.varint(*number);
        }
        self.message(field, &packed)
    }

    /// Seven bits to a byte, the lowest first.
    fn varint(&mut self, mut number: u64) {
        loop {
            let [low, ..] = number.to_le_bytes();
            number >>= 7;
            if number == 0 {
                return self.0.push(low);
            }
            self.0.push(low | 0x80);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_fields_are_as_the_specification_of_protocol_buffers_has_them() {
        let mut message = Message::default();
        // Its own examples: 150 in field 1, "testing" in field 2, and 3, 270, 86942 packed in field 6.
        message.number(1, 150).bytes(2, b"testing").numbers(6, &[3, 270, 86_942]);
        let expected = b"\x08\x96\x01\x12\x07testing\x32\x06\x03\x8e\x02\x9e\xa7\x05";
        assert_eq!(message.0, expected);
    }

    #[test]
    fn a_function_a_place_and_a_string_are_written_once() {
        let frame = |name: &str, line| Frame { name: name.to_owned(), file: "f.rs".to_owned(), line };
        let mut profile = Profile::new(100, UNIX_EPOCH, Duration::from_secs(1));
        let mut add = |line| {
            profile.add([vec![frame("inner", line), frame("inlined", 1)], vec![frame("main", 9)]], "t", 1);
            (profile.message.0.len(), profile.functions.len(), profile.locations.len(), profile.strings.len())
        };
        let (first, second, third) = (add(1), add(1), add(2));
        // The empty string, samples, count, cpu, nanoseconds; inner, f.rs, inlined, main; thread, t.
        assert_eq!((first.1, first.2, first.3), (3, 2, 11));
        assert_eq!((second.1, second.2, second.3), (3, 2, 11));
        assert_eq!((third.1, third.2, third.3), (3, 3, 11));
        assert!(second.0 - first.0 < 24, "a sample alone: {} bytes", second.0 - first.0);
    }
}
