//! Plots measurements as SVG.

use std::path::Path;

use plotters::prelude::*;
use workbench::Outcome;

/// Width and height in pixels.
const SIZE: (u32, u32) = (720, 420);

/// The most labels on the horizontal axis.
const MOST_LABELS: usize = 11;

/// The names of the axes.
pub struct Axes<'a> {
    /// Of the horizontal axis.
    pub across: &'a str,
    /// Of the vertical axis.
    pub up: &'a str,
}

/// The points of one line.
pub struct Line {
    /// The name in the legend.
    pub name: String,
    /// Horizontal and vertical values, in the order in which the line joins them.
    pub points: Vec<(f64, f64)>,
}

/// Draws lines over axes that begin at zero.
///
/// # Errors
/// The file can't be written.
pub fn lines(path: &Path, axes: &Axes<'_>, lines: &[Line]) -> Outcome {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let largest = |coordinate: fn(&(f64, f64)) -> f64| {
        lines.iter().flat_map(|line| &line.points).map(coordinate).fold(1.0, f64::max) * 1.05
    };
    let (right, top) = (largest(|point| point.0), largest(|point| point.1));
    let mut chart = ChartBuilder::on(&root)
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..right, 0.0..top)?;
    let label = |value: &f64| format!("{}", (value * 10.0).round() / 10.0);
    chart
        .configure_mesh()
        .x_desc(axes.across)
        .y_desc(axes.up)
        // Labels are whole numbers, as the axis counts threads.
        .x_labels(MOST_LABELS.min(right as usize + 1))
        .x_label_formatter(&label)
        .y_label_formatter(&label)
        .light_line_style(TRANSPARENT)
        .draw()?;
    for (index, line) in lines.iter().enumerate() {
        let colour = Palette99::pick(index).to_rgba();
        chart
            .draw_series(LineSeries::new(line.points.iter().copied(), colour.stroke_width(2)).point_size(3))?
            .label(&line.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
    }
    legend(&mut chart)?;
    Ok(root.present()?)
}

/// Names the lines.
fn legend<'a, Y: Ranged<ValueType = f64>, X: Ranged<ValueType = f64>>(
    chart: &mut ChartContext<'a, SVGBackend<'a>, Cartesian2d<X, Y>>,
) -> Outcome {
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .draw()?;
    Ok(())
}

/// Lines with a vertical axis of their own.
pub struct Series {
    /// What the axis shows.
    pub name: &'static str,
    /// The lines.
    pub lines: Vec<Line>,
}

/// The least and the greatest of positive values, with some room, for a logarithmic axis.
fn decades(values: impl Iterator<Item = f64>) -> std::ops::Range<f64> {
    let (low, high) = values
        .filter(|value| *value > 0.0)
        .fold((f64::MAX, f64::MIN_POSITIVE), |(low, high), value| (low.min(value), high.max(value)));
    if low > high { 0.5..2.0 } else { low / 1.5..high * 3.0 }
}

/// Draws two series over whole numbers, each with its own logarithmic axis: the left one solid, the right one with
/// circles. Lines with the same index in both have the same colour.
///
/// # Errors
/// The file can't be written.
pub fn two_scales(path: &Path, below: &str, left: &Series, right: &Series) -> Outcome {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let points = |series: &Series| -> Vec<(f64, f64)> {
        series.lines.iter().flat_map(|line| line.points.iter().copied()).collect()
    };
    let heights = |series: &Series| decades(points(series).into_iter().map(|point| point.1));
    let last = points(left).into_iter().map(|point| point.0).fold(1.0, f64::max);
    let across = -0.3..last + 0.3;
    let mut chart = ChartBuilder::on(&root)
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .right_y_label_area_size(70)
        .build_cartesian_2d(across.clone(), heights(left).log_scale())?
        .set_secondary_coord(across, heights(right).log_scale());
    chart
        .configure_mesh()
        .x_desc(below)
        .y_desc(left.name)
        .x_labels(last as usize + 1)
        .x_label_formatter(&|value| format!("{value:.0}"))
        .y_label_formatter(&|value| plain(*value))
        .light_line_style(TRANSPARENT)
        .draw()?;
    chart.configure_secondary_axes().y_desc(right.name).y_label_formatter(&|value| plain(*value)).draw()?;
    for (index, line) in left.lines.iter().enumerate() {
        let colour = Palette99::pick(index).to_rgba();
        chart
            .draw_series(LineSeries::new(line.points.iter().copied(), colour.stroke_width(2)))?
            .label(format!("{}: {}", left.name, line.name))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
    }
    for (index, line) in right.lines.iter().enumerate() {
        let colour = Palette99::pick(index).to_rgba();
        chart
            .draw_secondary_series(
                LineSeries::new(line.points.iter().copied(), colour.stroke_width(1)).point_size(3),
            )?
            .label(format!("{}: {}", right.name, line.name))
            .legend(move |(x, y)| Circle::new((x + 8, y), 3, colour.stroke_width(1)));
    }
    legend(&mut chart)?;
    Ok(root.present()?)
}

/// A number without needless digits.
fn plain(value: f64) -> String {
    match value {
        0.1.. => format!("{}", (value * 10.0).round() / 10.0),
        0.001.. => format!("{value:.3}"),
        _ => format!("{value:.0e}"),
    }
}

/// A bound of a bin; multiples of 1024 and of its square are short.
fn short(bound: u64) -> String {
    match bound {
        1.. if bound.is_multiple_of(1 << 20) => format!("{}Mi", bound >> 20),
        1.. if bound.is_multiple_of(1 << 10) => format!("{}Ki", bound >> 10),
        _ => bound.to_string(),
    }
}

/// A bin of a histogram.
pub struct Bar {
    /// Lower bound, inclusive.
    pub from: u64,
    /// Upper bound, exclusive.
    pub until: u64,
    /// The number of values.
    pub count: u64,
}

/// Draws a histogram.
///
/// All bins are drawn equally wide. The axis of counts is logarithmic, so that rare values show.
///
/// # Errors
/// The file can't be written.
pub fn histogram(path: &Path, axes: &Axes<'_>, bars: &[Bar]) -> Outcome {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let most = bars.iter().map(|bar| bar.count).max().unwrap_or(0).max(1) as f64;
    let mut chart = ChartBuilder::on(&root)
        .margin(12)
        .margin_right(36)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..bars.len() as f64, (0.5..most * 3.0).log_scale())?;
    let bound = |position: &f64| {
        let index = position.round() as usize;
        let inside = bars.get(index).map(|bar| bar.from);
        inside.or(bars.last().map(|bar| bar.until)).map_or_else(String::new, short)
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_desc(axes.across)
        .y_desc(axes.up)
        .x_labels(bars.len() + 1)
        .x_label_formatter(&bound)
        .y_label_formatter(&|value| plain(*value))
        .light_line_style(TRANSPARENT)
        .draw()?;
    let colour = Palette99::pick(0).to_rgba();
    chart.draw_series((0..).zip(bars).filter(|(_, bar)| bar.count > 0).map(|(index, bar)| {
        let from = f64::from(index);
        Rectangle::new([(from + 0.05, 0.5), (from + 0.95, bar.count as f64)], colour.filled())
    }))?;
    Ok(root.present()?)
}

/// Draws points with logarithmic axes, and the diagonal on which the two values of a point are equal.
///
/// # Errors
/// The file can't be written.
pub fn against_fit(path: &Path, axes: &Axes<'_>, kinds: &[Line]) -> Outcome {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let all = || kinds.iter().flat_map(|line| &line.points).flat_map(|&(x, y)| [x, y]);
    let range = decades(all());
    let mut chart = ChartBuilder::on(&root)
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(range.clone().log_scale(), range.clone().log_scale())?;
    chart
        .configure_mesh()
        .x_desc(axes.across)
        .y_desc(axes.up)
        .x_label_formatter(&|value| plain(*value))
        .y_label_formatter(&|value| plain(*value))
        .light_line_style(TRANSPARENT)
        .draw()?;
    let diagonal = [(range.start, range.start), (range.end, range.end)];
    chart.draw_series(LineSeries::new(diagonal, BLACK.mix(0.4)))?;
    for (index, kind) in kinds.iter().enumerate() {
        let colour = Palette99::pick(index).to_rgba();
        chart
            .draw_series(kind.points.iter().map(|&point| Circle::new(point, 4, colour.filled())))?
            .label(&kind.name)
            .legend(move |(x, y)| Circle::new((x + 8, y), 4, colour.filled()));
    }
    legend(&mut chart)?;
    Ok(root.present()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_threads_are_labelled_one_by_one() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let line = Line { name: "speed".to_owned(), points: vec![(1.0, 250.0), (2.0, 500.0)] };
        lines(file.path(), &Axes { across: "threads", up: "MB/s" }, &[line]).unwrap();
        let drawn = std::fs::read_to_string(file.path()).unwrap();
        let has = |label: &str| drawn.lines().any(|line| line == label);
        assert!(["0", "1", "2", "500"].into_iter().all(has) && !has("0.2") && !has("0.5") && !has("1.5"));
    }
}
