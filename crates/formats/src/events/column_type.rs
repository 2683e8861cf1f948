//! Types of columns that hold fields.

use hodo_model::Type;

use super::{
    foreign::{Elements, ForeignField},
    message::{Kind, Shown},
    schema::{FieldClass, Integer},
};

impl FieldClass {
    /// The type of a column of this field; `None` for padding. Fields with parts, and bytes, are text.
    pub fn column_type(&self) -> Option<Type> {
        Some(match self {
            FieldClass::Integer(integer) => integer.column_type(),
            FieldClass::VariableInteger(integer) if integer.signed => Type::Signed,
            FieldClass::VariableInteger(_) => Type::Integer,
            FieldClass::Real(_) => Type::Real,
            FieldClass::String(_) | FieldClass::Text(..) => Type::Name,
            FieldClass::Optional(choice) => match choice.options.as_slice() {
                [only] => return only.class.column_type(),
                _ => Type::Text,
            },
            FieldClass::Blob(..)
            | FieldClass::Structure(_)
            | FieldClass::Array(_)
            | FieldClass::Variant(_) => Type::Text,
            FieldClass::ForeignField(field) => match &**field {
                ForeignField::Padding(_) => return None,
                ForeignField::Known { .. } => Type::Integer,
                ForeignField::Message(field) => match field.kind {
                    Kind::Text => Type::Name,
                    _ if field.names.is_some() => Type::Name,
                    Kind::Signed | Kind::Zigzag => Type::Signed,
                    Kind::Unsigned => Type::Integer,
                    Kind::Boolean => Type::Boolean,
                    Kind::Bytes | Kind::Many => Type::Text,
                },
                ForeignField::Computed(field) => match field.shown {
                    Shown::Name(_) => Type::Name,
                    Shown::Itself | Shown::Other(_) => Type::Signed,
                },
                ForeignField::Named { .. }
                | ForeignField::Located { elements: Elements::Text, .. }
                | ForeignField::Rest(Elements::Text) => Type::Name,
                ForeignField::Located { .. }
                | ForeignField::Rest(_)
                | ForeignField::Counted(_)
                | ForeignField::Printed { .. } => Type::Text,
            },
        })
    }
}

impl Integer {
    fn column_type(&self) -> Type {
        match (self.boolean, self.signed) {
            (true, _) => Type::Boolean,
            (_, true) => Type::Signed,
            (_, false) => Type::Integer,
        }
    }
}
