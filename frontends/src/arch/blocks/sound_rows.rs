//! From frames of a spectrogram to the rows of an encoder: two convolutions over three frames (Whisper, arXiv
//! 2212.04356), the second one at every other place, and positions of a table.
//!
//! A token of the encoder is a place of the second convolution. Its given row has the five frames that the place
//! depends on, so a token depends on no other, and no state is kept between tokens. The first convolution is computed
//! at three places for each token, every second place twice: less than a hundredth of the encoder's work.

use crate::arch::blocks::attention::product;
use crate::arch::blocks::lifter::{Carried, Draft, Lifter};
use crate::arch::blocks::names::{KERNEL, Kind, POSITIONS, Part};
use crate::error::FrontendError;
use llmcc_ir::graph::{Input, Op, UnaryOp, Value};

/// The first convolution.
pub(crate) const FIRST_CONV: Part = Part("conv1");
/// The second one.
pub(crate) const SECOND_CONV: Part = Part("conv2");

/// Frames of a given row.
pub(crate) const FRAMES: usize = 5;

/// An encoder's way from sounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SoundRows {
    /// Numbers of a frame.
    pub mels: usize,
    /// Tokens of a clip.
    pub tokens: usize,
}

impl SoundRows {
    /// `frames`: the rows of the first layer, `hidden` columns.
    pub(crate) fn rows(self, l: &mut Lifter, hidden: usize) -> Result<Carried, FrontendError> {
        let mut f = l.func("frames");
        let frames = f.given(FRAMES * self.mels);
        let positions = f.input(Input::Positions);
        let width = KERNEL * self.mels;
        let (w, b) = convolution(&mut f, FIRST_CONV, [hidden, width]);
        let places = [0, 1, 2].map(|place| {
            let seen = f.op(Op::SliceCols { start: place * self.mels, len: width }, &[frames]);
            let y = product(&mut f, seen, w, Some(b));
            f.unary(UnaryOp::Gelu, y)
        });
        let [before, at, after] = places;
        let before = self.after_the_first(&mut f, before, positions);
        let all = f.op(Op::ConcatCols, &[before, at, after]);
        let (w, b) = convolution(&mut f, SECOND_CONV, [hidden, KERNEL * hidden]);
        let y = product(&mut f, all, w, Some(b));
        let x = f.unary(UnaryOp::Gelu, y);
        let table = f.weight(POSITIONS, Kind::Table, &[self.tokens, hidden]);
        let own = f.op(Op::EmbedPositions { every: 1, shift: 0 }, &[table, positions]);
        let x = f.add(x, own);
        Ok(f.call(&[x])?.pop().unwrap_or_default())
    }

    /// `x`, but zeros in the first row: before it there is nothing that was convolved.
    fn after_the_first(self, f: &mut Draft, x: Value, positions: Value) -> Value {
        let factors = (0..self.tokens).map(|i| if i == 0 { 0.0 } else { 1.0 }).collect();
        let table = f.shared_table("conv.before", "$conv.before", [self.tokens, 1], factors);
        let factor = f.op(Op::EmbedPositions { every: 1, shift: 0 }, &[table, positions]);
        f.op(Op::Combine, &[factor, x])
    }
}

/// The matrix and the bias of a convolution over three rows: the matrix has the columns of one row after those of the
/// row before, whereas checkpoints have the three numbers of each input side by side.
fn convolution(f: &mut Draft, part: Part, [out, columns]: [usize; 2]) -> (Value, Value) {
    let inputs = columns / KERNEL;
    let w = f.weight(part, Kind::Kernel, &[out, columns]);
    let order = (0..columns).map(|j| (j % KERNEL * inputs + j / KERNEL) as f32).collect();
    let name = format!("{}.order", part.0);
    let order = f.computed(&name, &format!("${name}"), order);
    let w = f.op(Op::PlaceCols, &[w, order]);
    (w, f.bias(part, out))
}
