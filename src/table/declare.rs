//! Declares sets of tables.

/// Declares a set of tables of one type of value, and what it has beside them. It does with each table exactly once what
/// [`State`](super::versions::State) says of `next` and `clear`.
macro_rules! tables {
    (
        $(#[$set_doc:meta])* $set_visibility:vis struct $set:ident<$stored:ident> beside {
            $(#[$beside_doc:meta])* $beside:ident: $data:ty $(,)?
        }
        $($(#[$doc:meta])* $name:ident: $key:ty => $value:ty,)*
    ) => {
        $(#[$set_doc])*
        $set_visibility struct $set<$stored> {
            $($(#[$doc])* pub(crate) $name: $crate::table::Table<$key, $value>,)*
            $(#[$beside_doc])*
            pub(crate) $beside: $data,
        }

        impl<$stored> $set<$stored> {
            /// Without entries.
            pub(crate) fn new() -> Self {
                Self { $($name: $crate::table::Table::new(),)* $beside: <$data>::default() }
            }
        }

        impl<$stored: $crate::table::Value> $set<$stored> {
            /// The same tables of the next version.
            pub(crate) fn next(&self, sharing: &$crate::table::versions::Sharing) -> Self {
                Self { $($name: sharing.table(&self.$name),)* $beside: self.$beside.clone() }
            }
        }

        impl<$stored: $crate::table::Value> $crate::table::versions::TableSet for $set<$stored> {
            type Item = $stored::Item;

            fn clear(&mut self, clearing: &mut $crate::table::versions::Clearing<'_, $stored::Item>) {
                $(clearing.table(&mut self.$name);)*
                self.$beside = <$data>::default();
            }
        }
    };
}
pub(crate) use tables;
