//! Declares sets of tables.

/// Declares a set of tables of one type of objects, and what it has beside them. It does with each table exactly once what
/// [`State`](super::versions::State) says of `next` and `clear`.
macro_rules! tables {
    (
        $(#[$set_doc:meta])* $set_visibility:vis struct $set:ident<$object:ident> beside {
            $(#[$beside_doc:meta])* $beside:ident: $data:ty $(,)?
        }
        $($(#[$doc:meta])* $name:ident: $key:ty => $value:ty,)*
    ) => {
        $(#[$set_doc])*
        $set_visibility struct $set<$object> {
            $($(#[$doc])* pub(crate) $name: $crate::table::Table<$key, $value>,)*
            $(#[$beside_doc])*
            pub(crate) $beside: $data,
        }

        impl<$object> $set<$object> {
            /// Without entries.
            pub(crate) fn new() -> Self {
                Self { $($name: $crate::table::Table::new(),)* $beside: <$data>::default() }
            }
        }

        impl<$object: $crate::table::Value> $set<$object> {
            /// The same tables of the next version.
            pub(crate) fn next(&self, sharing: &$crate::table::versions::Sharing) -> Self {
                Self { $($name: sharing.table(&self.$name),)* $beside: self.$beside.clone() }
            }
        }

        impl<$object: $crate::table::Value> $crate::table::versions::TableSet for $set<$object> {
            type Shared = $object::Shared;

            fn clear(&mut self, clearing: &mut $crate::table::versions::Clearing<'_, $object::Shared>) {
                $(clearing.table(&mut self.$name);)*
                self.$beside = <$data>::default();
            }
        }
    };
}
pub(crate) use tables;
