//! The protocol's JSON, with its names. Times are nanoseconds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A map with string keys, in order.
pub(crate) type Map<T> = BTreeMap<String, T>;

/// `ErrorResponse`.
#[derive(Debug, Serialize)]
pub(crate) struct Failure {
    pub(crate) title: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<String>,
}

/// `GenericResponse` with a model.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Answer<T> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<T>,
    pub(crate) status: &'static str,
    pub(crate) status_message: String,
}

/// `Trace`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Trace {
    #[serde(rename = "UUID")]
    pub(crate) uuid: String,
    pub(crate) name: String,
    pub(crate) path: String,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) nb_events: u64,
    pub(crate) indexing_status: &'static str,
    pub(crate) properties: Map<String>,
}

/// `Experiment`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Experiment {
    #[serde(rename = "UUID")]
    pub(crate) uuid: String,
    pub(crate) name: String,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) nb_events: u64,
    pub(crate) indexing_status: &'static str,
    pub(crate) traces: Vec<Trace>,
}

/// `DataProvider`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Provider {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) description: String,
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
}

/// `OutputElementStyle`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Style {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) parent_key: Option<String>,
    pub(crate) values: Map<StyleValue>,
}

/// `StyleValue`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum StyleValue {
    Text(String),
    Number(f64),
}

/// `OutputStyleModel`.
#[derive(Debug, Serialize)]
pub(crate) struct Styles {
    pub(crate) styles: Map<Style>,
}

/// `TreeColumnHeader`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TreeHeader {
    pub(crate) name: String,
    pub(crate) tooltip: String,
    pub(crate) data_type: &'static str,
}

/// `TreeDataModel`, and with `start` and `end` `TimeGraphEntry`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TreeEntry {
    pub(crate) id: usize,
    /// -1 at the root.
    pub(crate) parent_id: i64,
    pub(crate) labels: Vec<String>,
    pub(crate) has_data: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) start: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) end: Option<u64>,
    /// Of a chart: whether it is shown at first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) is_default: Option<bool>,
}

/// `TreeEntryModel`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TreeModel {
    pub(crate) entries: Vec<TreeEntry>,
    pub(crate) headers: Vec<TreeHeader>,
    pub(crate) auto_expand_level: i32,
}

/// `TimeGraphModel`.
#[derive(Debug, Serialize)]
pub(crate) struct Rows {
    pub(crate) rows: Vec<TimeGraphRow>,
}

/// `TimeGraphRowModel`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TimeGraphRow {
    pub(crate) entry_id: usize,
    pub(crate) states: Vec<State>,
}

/// `TimeGraphState`.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct State {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) label: String,
    pub(crate) style: Style,
}

/// `TimeGraphArrow`.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Arrow {
    pub(crate) source_id: usize,
    pub(crate) target_id: usize,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// `XYModel`.
#[derive(Debug, Serialize)]
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) series: Vec<Series>,
}

/// `SeriesModel`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Series {
    pub(crate) series_id: usize,
    pub(crate) series_name: String,
    pub(crate) style: Style,
    pub(crate) x_values: Vec<u64>,
    pub(crate) y_values: Vec<f64>,
    pub(crate) x_values_description: Axis,
    pub(crate) y_values_description: Axis,
}

/// `XYAxisDescription`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Axis {
    pub(crate) label: String,
    pub(crate) unit: String,
    pub(crate) data_type: &'static str,
}

/// `TableColumnHeader`.
#[derive(Debug, Serialize)]
pub(crate) struct TableHeader {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) description: String,
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
}

/// `VirtualTableModel`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Lines {
    pub(crate) column_ids: Vec<u64>,
    pub(crate) low_index: u64,
    pub(crate) size: u64,
    pub(crate) lines: Vec<Line>,
}

/// `VirtualTableLine`.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    pub(crate) index: u64,
    pub(crate) cells: Vec<LineCell>,
}

/// `VirtualTableCell`.
#[derive(Debug, Serialize)]
pub(crate) struct LineCell {
    pub(crate) content: String,
}

/// `AnnotationCategoriesModel`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Categories {
    pub(crate) annotation_categories: Vec<String>,
}

/// `AnnotationModel`.
#[derive(Debug, Serialize)]
pub(crate) struct Annotations {
    pub(crate) annotations: Map<Vec<Annotation>>,
}

/// `Annotation`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Annotation {
    /// -1: of no row.
    pub(crate) entry_id: i64,
    pub(crate) time: u64,
    pub(crate) duration: u64,
    pub(crate) label: String,
    #[serde(rename = "type")]
    pub(crate) kind: &'static str,
    pub(crate) style: Style,
}

/// The body of a POST request.
#[derive(Debug, Deserialize)]
pub(crate) struct Body<T> {
    pub(crate) parameters: T,
}

/// `TimeRange`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TimeRange {
    pub(crate) start: i64,
    pub(crate) end: i64,
    pub(crate) nb_times: Option<i64>,
}

/// `TreeParameters`.
#[derive(Debug, Deserialize)]
pub(crate) struct TreeParameters {
    pub(crate) requested_timerange: Option<TimeRange>,
}

/// `ArrowsParameters`.
#[derive(Debug, Deserialize)]
pub(crate) struct ArrowsParameters {
    pub(crate) requested_timerange: TimeRange,
}

/// `RequestedParameters`.
#[derive(Debug, Deserialize)]
pub(crate) struct RequestedParameters {
    pub(crate) requested_timerange: TimeRange,
    pub(crate) requested_items: Vec<i64>,
}

/// `AnnotationsParameters`.
#[derive(Debug, Deserialize)]
pub(crate) struct AnnotationsParameters {
    pub(crate) requested_timerange: TimeRange,
    pub(crate) requested_marker_categories: Option<Vec<String>>,
}

/// `TooltipParameters`.
#[derive(Debug, Deserialize)]
pub(crate) struct TooltipParameters {
    pub(crate) requested_items: Vec<i64>,
    pub(crate) requested_times: Vec<i64>,
    pub(crate) requested_element: Element,
}

/// `Element`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Element {
    pub(crate) element_type: String,
    pub(crate) time: i64,
}

/// `LinesParameters`.
#[derive(Debug, Deserialize)]
pub(crate) struct LinesParameters {
    pub(crate) requested_table_index: Option<u64>,
    pub(crate) requested_times: Option<Vec<i64>>,
    pub(crate) requested_table_count: u64,
    pub(crate) requested_table_column_ids: Option<Vec<u64>>,
    pub(crate) table_search_expressions: Option<Map<String>>,
}

/// `TraceParameters`.
#[derive(Debug, Deserialize)]
pub(crate) struct TraceParameters {
    pub(crate) uri: String,
}

/// `ExperimentParameters`.
#[derive(Debug, Deserialize)]
pub(crate) struct ExperimentParameters {
    pub(crate) traces: Vec<String>,
}
