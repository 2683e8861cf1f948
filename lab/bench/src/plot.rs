//! Plots measurements as SVG.

use std::path::Path;

use plotters::prelude::*;
use workbench::Outcome;

/// Width and height in pixels.
const SIZE: (u32, u32) = (720, 420);

/// The most labels on the horizontal axis.
const MOST_LABELS: usize = 11;

/// The points of one line.
pub struct Line {
    /// The name in the legend.
    pub name: String,
    /// Horizontal and vertical values, in the order in which the line joins them.
    pub points: Vec<(f64, f64)>,
}

/// Draws lines over axes that begin at zero; `axes` are the names of the horizontal and the vertical axis.
///
/// # Errors
/// The file can't be written.
pub fn lines(path: &Path, axes: (&str, &str), lines: &[Line]) -> Outcome {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let largest = |of: fn(&(f64, f64)) -> f64| {
        lines.iter().flat_map(|line| &line.points).map(of).fold(1.0, f64::max) * 1.05
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
        .x_desc(axes.0)
        .y_desc(axes.1)
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
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .draw()?;
    Ok(root.present()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_threads_are_labelled_one_by_one() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let line = Line { name: "speed".to_owned(), points: vec![(1.0, 250.0), (2.0, 500.0)] };
        lines(file.path(), ("threads", "MB/s"), &[line]).unwrap();
        let drawn = std::fs::read_to_string(file.path()).unwrap();
        let has = |label: &str| drawn.lines().any(|line| line == label);
        assert!(["0", "1", "2", "500"].into_iter().all(has) && !has("0.2") && !has("0.5") && !has("1.5"));
    }
}
