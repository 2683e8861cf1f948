//! Reads TSDL, the language of CTF 1.8 metadata (CTF 1.8 section 7).
//!
//! ```text
//! text ──Lexer──► words ──Parser──► blocks and types ──roles──► ──resolve──► TraceClass
//! ```

mod blocks;
mod parser;
mod roles;
mod token;
mod types;

use super::resolve;
use crate::error::Error;
use crate::events::schema::{ByteOrder, TraceClass};
use parser::Parser;
use token::{Kind, Lexer};

/// Reads TSDL. `packets` is the byte order of the metadata packets, if the text was in packets.
///
/// # Errors
/// The line, marked at the position, and what was expected there.
pub(super) fn read(text: &str, packets: Option<ByteOrder>) -> Result<TraceClass, Error> {
    let mut parser = Parser::new(text, byte_order(text).or(packets))?;
    let mut trace = parser.metadata()?;
    trace.version = 1;
    roles::settle(&mut trace).map_err(|reason| parser.metadata_error(reason))?;
    resolve::resolve(&mut trace).map_err(|reason| parser.metadata_error(reason))?;
    Ok(trace)
}

/// Finds the byte order in the `trace` block, on which types before that block depend too.
fn byte_order(text: &str) -> Option<ByteOrder> {
    let mut lexer = Lexer::new(text);
    let mut depth = 0u64;
    let mut in_trace = false;
    // The two preceding tokens, to recognise `byte_order = le`.
    let mut before = [Kind::End, Kind::End];
    loop {
        let kind = lexer.next_token().ok()?.kind;
        match &kind {
            Kind::End => return None,
            Kind::Sign("{") => {
                in_trace |= depth == 0 && before[1] == Kind::Word("trace");
                depth += 1;
            }
            Kind::Sign("}") => {
                depth = depth.saturating_sub(1);
                in_trace &= depth > 0;
            }
            Kind::Word(order)
                if in_trace && depth == 1 && before == [Kind::Word("byte_order"), Kind::Sign("=")] =>
            {
                return types::byte_order(order);
            }
            _ => {}
        }
        before.rotate_left(1);
        before[1] = kind;
    }
}
