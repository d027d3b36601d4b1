//! Families of models with towers.

use super::expansion::Expansion;
use super::vit::Vit;
use crate::arch::blocks::lifter::{Carried, Lifter};
use crate::arch::blocks::names::Names;
use crate::arch::blocks::outputs::ImageRows;
use crate::config::ConfigError;
use crate::config::fields::Fields;
use crate::error::FrontendError;
use crate::image::Processor;
use serde_json::{Map, Value};
use std::fmt;

/// A family of models with a tower.
pub(crate) struct Family {
    /// `model_type` of the whole.
    pub model_type: &'static str,
    /// Names of the tensors of tower and projector.
    pub names: Names,
    /// How images become pixels where the checkpoint says nothing else.
    pub processor: fn(&Tower) -> Processor,
    /// Reads the configuration of the whole; the second one is of `vision_config`.
    pub read: fn(&Fields, &Map<String, Value>) -> Result<Tower, ConfigError>,
}

/// The part between a tower and the text model.
pub(crate) trait Projector: fmt::Debug {
    /// The rows `[R, hidden]` of an image, `hidden` being the text model's width; the last call's result.
    ///
    /// # Errors
    /// A tensor is missing, or has another shape or type than needed.
    fn lift(&self, l: &mut Lifter, vit: &Vit, x: &Carried) -> Result<(), FrontendError>;
}

/// A configuration that a family has read.
#[derive(Debug)]
pub(crate) struct Tower {
    /// From patches to rows.
    pub vit: Vit,
    /// From these to the rows of the text model.
    pub projector: Box<dyn Projector>,
    /// The rows that the projector is asked for: the first one, and from each to the next.
    pub rows: (usize, usize),
    /// How images stand in texts.
    pub expansion: Expansion,
}

impl Tower {
    /// The rows of images among the tokens of a text.
    pub(crate) fn seen(&self) -> ImageRows {
        ImageRows { token: self.expansion.token, both_ways: self.expansion.both_ways }
    }
}
