//! Colours of values. A value keeps its colour in all outputs, as the colour depends on its name.

use crate::model::{Map, Style, StyleValue, Styles};

/// Colours that people with colour blindness can tell apart (M. Okabe and K. Ito, *Color Universal Design*, 2008), and
/// lighter and darker ones of them.
const COLOURS: [&str; 16] = [
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999", "#66AAD0",
    "#F0C566", "#66C5AB", "#E0AFCA", "#004469", "#8A5F00", "#005F45", "#803800",
];

/// The style of what is missing.
pub(crate) const LOSS: &str = "loss";

/// Returns the key of a value's style.
fn key(name: &str) -> String {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = name.bytes().fold(0x811c_9dc5, step);
    format!("colour{}", hash as usize % COLOURS.len())
}

/// Returns the style of a value. `share` is the part of the state that it fills, if other values fill the rest.
pub(crate) fn of(name: &str, share: Option<f64>) -> Style {
    // Hundredths: json-bigint, with which clients read answers, takes numbers of more than 15 characters for integers.
    let rounded = |share: f64| (share.clamp(0.2, 1.0) * 100.0).round() / 100.0;
    let opacity = share.map(|share| ("opacity".to_owned(), StyleValue::Number(rounded(share))));
    Style { parent_key: Some(key(name)), values: opacity.into_iter().collect() }
}

/// Returns all styles.
pub(crate) fn all() -> Styles {
    let style = |colour: &str| {
        let value = StyleValue::Text(colour.to_owned());
        let values = [("background-color", value.clone()), ("color", value)];
        Style { parent_key: None, values: values.map(|(name, value)| (name.to_owned(), value)).into() }
    };
    let colours =
        COLOURS.iter().enumerate().map(|(number, colour)| (format!("colour{number}"), style(colour)));
    let mut styles: Map<Style> = colours.collect();
    styles.insert(LOSS.to_owned(), style("#D55E00"));
    Styles { styles }
}
