//! Pages and pictures from templates (Jinja), in which texts are no markup.

use crate::Error;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment};
use serde::Serialize;

/// Draws the chart `c`, for the templates that include it.
const CHART: &str = include_str!("chart.svg");

/// A template, filled. (A template loses the end of its last line.)
///
/// # Errors
/// A template that is wrong.
pub fn filled(template: &str, content: &impl Serialize) -> Result<String, Error> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    let added = environment.add_template("chart.svg", CHART);
    let filled = added.and_then(|()| environment.render_str(template, Serde(content)));
    filled.map(|text| text + "\n").map_err(|e| Error::Failed(format!("internal error: the page cannot be made: {e}")))
}
