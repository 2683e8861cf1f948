//! Call paths as a sunburst in SVG: the roots are the innermost ring, callees lie outside of their callers, and the angle
//! of an arc is its share (the drawing of Sharma and Dagenais, 2016, Figure 6; J. Stasko and E. Zhang, 2000).
//!
//! The number of a row is as in [`folded`](crate::folded). Arcs below a quarter of a degree are left out. Pointing at an
//! arc shows its name, number and share. A limit keeps the heaviest arcs; the others of each caller are one grey arc, so
//! that shares are of the whole.

use std::{cmp::Reverse, io};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use hodo_model::table::{Cell, cells};

use crate::{Draw, End, Options, Output, Reader, View, folded::Columns, xml::escaped};

pub(crate) const VIEW: View = View {
    name: "sunburst",
    help: "call paths as rings, in SVG: `-o paths.svg`; with --limit N the N heaviest, and the rest as grey arcs",
    reader: Reader::ProgramsOfBytes,
    shows_loss: false,
    several: None,
    begin,
};

/// Width and height.
const SIZE: f64 = 720.0;
/// The radius of the hole.
const HOLE: f64 = 60.0;
/// The most rings; deeper calls are part of the arcs below them.
const RINGS: usize = 24;
/// The widest ring.
const WIDEST: f64 = 60.0;
/// The smallest arc, as a share of the circle.
const SMALLEST: f64 = 0.25 / 360.0;
/// Pixels of a character.
const CHARACTER: f64 = 6.2;
/// Pixels around the outermost ring.
const MARGIN: f64 = 4.0;

struct Sunburst<'o> {
    out: Output<'o>,
    columns: Columns,
    /// The rows of the first [`RINGS`] levels, depth first.
    arcs: Vec<Arc>,
    /// The open arcs at the last row, the root first.
    path: Vec<usize>,
    /// The maximum number of arcs, without those of the rest.
    limit: Option<u64>,
}

struct Arc {
    depth: usize,
    name: String,
    /// Its own number, and later that of its callees too.
    number: u64,
    /// Stands for several arcs beyond the limit.
    is_rest: bool,
}

fn begin<'o>(schema: &SchemaRef, options: &Options, out: Output<'o>) -> io::Result<Box<dyn Draw + 'o>> {
    let (columns, limit) = (Columns::of(schema), options.limit);
    Ok(Box::new(Sunburst { out, columns, arcs: Vec::new(), path: Vec::new(), limit }))
}

/// The arcs of one caller that do not stay.
#[derive(Default)]
struct Rest {
    /// How many there are, their callees included.
    paths: u64,
    number: u64,
}

/// The part of the circle that an arc covers, as shares of the circle.
#[derive(Clone, Copy)]
struct Sector {
    from: f64,
    share: f64,
}

impl Sector {
    fn middle_in_degrees(self) -> f64 {
        (self.from + self.share / 2.0) * 360.0
    }
}

/// Keeps the heaviest arcs, at most `limit`. The others of each caller become one arc behind those that stay.
fn heaviest(arcs: Vec<Arc>, limit: u64) -> Vec<Arc> {
    // A caller comes before its callees and is at least as heavy, so the caller of an arc that stays does too.
    let mut order: Vec<usize> = (0..arcs.len()).collect();
    order.sort_by_key(|&index| (Reverse(arcs[index].number), index));
    order.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    let mut stays = vec![false; arcs.len()];
    order.into_iter().for_each(|index| stays[index] = true);
    let mut kept = Vec::new();
    // For the roots and for the callees of each open arc.
    let mut rest = vec![Rest::default()];
    let close = |kept: &mut Vec<Arc>, Rest { paths, number }, depth| {
        if paths > 0 {
            let name = format!("{paths} more path{}", if paths == 1 { "" } else { "s" });
            kept.push(Arc { depth, name, number, is_rest: true });
        }
    };
    for (arc, stays) in arcs.into_iter().zip(stays) {
        while rest.len() > arc.depth + 1 {
            close(&mut kept, rest.pop().unwrap_or_default(), rest.len());
        }
        if stays {
            rest.push(Rest::default());
            kept.push(arc);
            continue;
        }
        let depth = rest.len() - 1;
        rest[depth].paths += 1;
        // The number of an arc includes those of its callees.
        if arc.depth == depth {
            rest[depth].number = rest[depth].number.saturating_add(arc.number);
        }
    }
    while let Some(last) = rest.pop() {
        close(&mut kept, last, rest.len());
    }
    kept
}

impl Draw for Sunburst<'_> {
    fn limits_itself(&self) -> bool {
        true
    }

    fn batch(&mut self, batch: &RecordBatch) -> io::Result<()> {
        let cells = cells(batch);
        for row in 0..batch.num_rows() {
            let depth = self.columns.depth(&cells, row).min(self.path.len());
            let number = self.columns.number(&cells, row);
            self.path.truncate(depth);
            self.path.iter().for_each(|&caller| {
                self.arcs[caller].number = self.arcs[caller].number.saturating_add(number);
            });
            if depth < RINGS {
                self.path.push(self.arcs.len());
                let name = match self.columns.frame(&cells, row) {
                    Cell::Text(name) if !name.is_empty() => name.to_owned(),
                    _ => "-".to_owned(),
                };
                self.arcs.push(Arc { depth, name, number, is_rest: false });
            }
        }
        Ok(())
    }

    fn end(self: Box<Self>, _: &End<'_>) -> io::Result<()> {
        let Sunburst { out, columns, arcs, limit, .. } = *self;
        let arcs = match limit {
            Some(limit) => heaviest(arcs, limit),
            None => arcs,
        };
        let roots = arcs.iter().filter(|arc| arc.depth == 0);
        let total = roots.fold(0, |sum: u64, arc| sum.saturating_add(arc.number));
        let is_shown = |arc: &&Arc| arc.number as f64 >= total as f64 * SMALLEST && arc.number > 0;
        let rings = arcs.iter().filter(is_shown).map(|arc| arc.depth + 1).max().unwrap_or(1);
        let ring = ((SIZE / 2.0 - HOLE - MARGIN) / rings as f64).min(WIDEST);
        writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{SIZE}\" height=\"{SIZE}\" viewBox=\"{0} {0} {SIZE} \
             {SIZE}\" font-family=\"sans-serif\" font-size=\"11\">\n<rect x=\"{0}\" y=\"{0}\" width=\"{SIZE}\" \
             height=\"{SIZE}\" fill=\"white\"/>",
            -SIZE / 2.0
        )?;
        // Where the next arc of each ring begins, as a share of the circle.
        let mut next = [0.0; RINGS + 1];
        for arc in &arcs {
            let sector = Sector { from: next[arc.depth], share: arc.number as f64 / total.max(1) as f64 };
            next[arc.depth] = sector.from + sector.share;
            next[arc.depth + 1] = sector.from;
            if is_shown(&arc) {
                draw(out, arc, sector, ring, &columns.unit)?;
                draw_name(out, arc, sector, ring)?;
            }
        }
        writeln!(
            out,
            "<text text-anchor=\"middle\" y=\"-2\">{total}</text>\n<text text-anchor=\"middle\" y=\"12\">{}</text>\n\
             </svg>",
            escaped(&columns.unit)
        )?;
        out.flush()
    }
}

/// Draws an arc; `ring` is the width of a ring.
fn draw(out: Output<'_>, arc: &Arc, sector: Sector, ring: f64, unit: &str) -> io::Result<()> {
    let Sector { from, share } = sector;
    let inner = HOLE + ring * arc.depth as f64;
    let outer = inner + ring;
    // SVG draws nothing if an arc ends where it begins, after rounding. So a whole circle ends just before.
    let until = from + share.min(0.9998);
    let point = |radius: f64, turn: f64| {
        let (sine, cosine) = (turn * std::f64::consts::TAU).sin_cos();
        format!("{:.2} {:.2}", radius * sine, -radius * cosine)
    };
    let large = u8::from(share > 0.5);
    // Neighbours differ in colour, and callees look like their callers.
    let (hue, light) = (sector.middle_in_degrees(), 62 + 3 * (arc.depth % 4));
    let (saturation, light) = if arc.is_rest { (0, 82) } else { (55, light) };
    writeln!(
        out,
        "<path d=\"M{} A{outer:.2} {outer:.2} 0 {large} 1 {} L{} A{inner:.2} {inner:.2} 0 {large} 0 {}Z\" \
         fill=\"hsl({hue:.0},{saturation}%,{light}%)\" stroke=\"white\" stroke-width=\"0.6\"><title>{}: {} {} ({:.2} %)</title></path>",
        point(outer, from),
        point(outer, until),
        point(inner, until),
        point(inner, from),
        escaped(&arc.name),
        arc.number,
        escaped(unit),
        share * 100.0
    )
}

/// Draws the name of an arc, if there is room.
fn draw_name(out: Output<'_>, arc: &Arc, sector: Sector, ring: f64) -> io::Result<()> {
    let inner = HOLE + ring * arc.depth as f64;
    let (outer, middle) = (inner + ring, inner + ring / 2.0);
    let width = std::f64::consts::TAU * middle * sector.share;
    // Text is straight, so it has to fit between the ring's middle and its edge.
    let straight = 2.0 * (outer * outer - middle * middle).sqrt();
    let room = (if width > ring { width.min(straight) } else { ring } / CHARACTER) as usize;
    if width < 12.0 || room < 4 || (width > ring && ring < 14.0) {
        return Ok(());
    }
    let name: String = match arc.name.chars().count() > room {
        true => arc.name.chars().take(room - 1).chain(['…']).collect(),
        false => arc.name.clone(),
    };
    let degrees = sector.middle_in_degrees();
    // Along the ring where the arc is wide, across it where it is narrow; never upside down.
    let turn = match (width > ring, degrees) {
        (true, 90.0..270.0) => degrees + 180.0,
        (true, _) => degrees,
        (false, ..180.0) => degrees - 90.0,
        (false, _) => degrees + 90.0,
    };
    let [x, y] = [middle * degrees.to_radians().sin(), -middle * degrees.to_radians().cos()];
    writeln!(
        out,
        "<text text-anchor=\"middle\" dominant-baseline=\"central\" pointer-events=\"none\" \
         transform=\"translate({x:.2} {y:.2}) rotate({turn:.1})\">{}</text>",
        escaped(&name)
    )
}
