//! UIDs and full names as strings for serde.

use std::borrow::Cow;

use serde_core::de::{Deserialize, Deserializer, Error};
use serde_core::ser::{Serialize, Serializer};

use super::{FullName, MirrorPodUid, PodUid, ResolvedPodUid};

macro_rules! as_string {
    ($($name:ident),*) => {$(
        /// As a string.
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        /// From a string. Refuses what [`FromStr`](std::str::FromStr) refuses.
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Cow::<str>::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        }
    )*};
}

as_string!(FullName, MirrorPodUid, PodUid, ResolvedPodUid);

#[cfg(test)]
mod tests {
    use crate::id::{FullName, PodUid};

    #[test]
    fn uids_and_full_names_are_strings_in_json() {
        for text in ["0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0", "any other"] {
            let json = serde_json::to_string(&PodUid::from(text)).expect("a string");
            assert_eq!(json, format!("{text:?}"));
            assert_eq!(serde_json::from_str::<PodUid>(&json).expect("a UID"), text);
        }
        let name: FullName = serde_json::from_str(r#""web-0_shop""#).expect("a full name");
        assert_eq!(serde_json::to_string(&name).expect("a string"), r#""web-0_shop""#);
        assert!(serde_json::from_str::<PodUid>(r#""""#).is_err());
        assert!(serde_json::from_str::<FullName>(r#""web-0""#).is_err());
    }
}
