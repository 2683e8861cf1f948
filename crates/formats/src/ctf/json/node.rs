//! JSON values with their paths, for error messages.

use serde_json::Value;

/// An error and the JSON path where it occurred.
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) path: String,
    pub(super) reason: String,
}

/// A value within a fragment.
pub(super) struct Node<'a> {
    value: &'a Value,
    /// Such as `$.member-classes[3].field-class`.
    path: String,
}

impl<'a> Node<'a> {
    /// The node of a whole fragment.
    pub(super) fn root(value: &'a Value) -> Node<'a> {
        Node { value, path: "$".to_owned() }
    }

    pub(super) fn value(&self) -> &'a Value {
        self.value
    }

    /// Creates an error at this value.
    pub(super) fn wrong(&self, reason: impl Into<String>) -> Wrong {
        Wrong { path: self.path.clone(), reason: reason.into() }
    }

    /// The member of an object, if it exists.
    pub(super) fn get(&self, name: &str) -> Option<Node<'a>> {
        Some(Node { value: self.value.get(name)?, path: format!("{}.{name}", self.path) })
    }

    /// The member of an object, or an error.
    pub(super) fn required(&self, name: &str) -> Result<Node<'a>, Wrong> {
        self.get(name).ok_or_else(|| self.wrong(format!("`{name}` is missing")))
    }

    /// The members of an optional object, by name.
    pub(super) fn members(&self, name: &str) -> Result<Vec<(&'a str, Node<'a>)>, Wrong> {
        let Some(node) = self.get(name) else { return Ok(Vec::new()) };
        let object = node.value.as_object().ok_or_else(|| node.wrong("an object expected"))?;
        let child = |(key, value): (&'a String, &'a Value)| {
            (key.as_str(), Node { value, path: format!("{}.{key}", node.path) })
        };
        Ok(object.iter().map(child).collect())
    }

    /// The elements of an array.
    pub(super) fn list(&self) -> Result<Vec<Node<'a>>, Wrong> {
        let list = self.value.as_array().ok_or_else(|| self.wrong("an array expected"))?;
        let element = |(index, value)| Node { value, path: format!("{}[{index}]", self.path) };
        Ok(list.iter().enumerate().map(element).collect())
    }

    pub(super) fn string(&self) -> Result<&'a str, Wrong> {
        self.value.as_str().ok_or_else(|| self.wrong("a string expected"))
    }

    /// An optional string.
    pub(super) fn text(&self, name: &str) -> Result<Option<&'a str>, Wrong> {
        self.get(name).map(|node| node.string()).transpose()
    }

    pub(super) fn unsigned(&self) -> Result<u64, Wrong> {
        self.value.as_u64().ok_or_else(|| self.wrong("an integer that is not negative expected"))
    }

    pub(super) fn integer(&self) -> Result<i128, Wrong> {
        let integer = self.value.as_i64().map(i128::from).or(self.value.as_u64().map(i128::from));
        integer.ok_or_else(|| self.wrong("an integer expected"))
    }

    /// Rejects extensions, which change the format; none are supported.
    pub(super) fn no_extensions(&self) -> Result<(), Wrong> {
        let named = self.members("extensions")?.into_iter().next();
        named.map_or(Ok(()), |(name, node)| {
            Err(node.wrong(format!("the CTF 2 extension `{name}` is not supported")))
        })
    }
}
