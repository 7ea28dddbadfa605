//! Methods that read the fields of a report, so that the fields can change.

/// The methods of one type: for each its field, its result, and how that is read from the field.
macro_rules! getters {
    ($type:ident { $($(#[$attr:meta])* $field:ident: $result:ty = $by:ident),* $(,)? }) => {
        impl $type {
            $($(#[$attr])* pub fn $field(&self) -> $result { getters!($by self.$field) })*
        }
    };
    (copy $field:expr) => { $field };
    (borrow $field:expr) => { &$field };
    (as_ref $field:expr) => { $field.as_ref() };
    (as_deref $field:expr) => { $field.as_deref() };
}
