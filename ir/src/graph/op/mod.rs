//! Graph operations: one table.
//!
//! Activations are f32 matrices `[M, cols]`, `M` being `T` or `R`; heads are runs of `head_dim`
//! columns, so attention needs no reshape or transpose. Weights are matrices `[n, k]` (`k` = input
//! columns, as `y = x·wᵀ`) or vectors `[n]`.
//!
//! A line of the table gives an operation's meaning, name, attributes, time of computation and
//! kinds of operands. From it come [`Op`], [`Head`] (its name in the e-graph), its text, and all
//! facts that verifier and passes ask of an operation. How it is typed and evaluated is its
//! [`Rule`], in the file of its theme; weights are computed by the same rule when they are packed.

mod absmax;
mod attention;
mod attr;
mod columns;
mod elementwise;
mod embed;
mod evict;
mod facts;
mod given;
mod hashed;
#[cfg(test)]
mod newcomer;
mod norms;
mod positions;
mod products;
mod recurrent;
mod route;
mod rule;
mod select;
mod sinkhorn;
mod table;
mod weights;
mod windows;

pub use absmax::RowScale;
pub use attr::{Attr, AttrKind, AttrType};
pub(crate) use columns::column;
pub use columns::places;
pub use elementwise::{BinaryOp, UnaryOp};
pub use evict::{Criterion, Eviction};
pub use facts::{AXES, Facts, Input, Reads, Stage};
pub(crate) use given::{substituted, without_row};
pub use hashed::Hashes;
pub(crate) use hashed::hashed_ids;
pub use recurrent::Update;
pub use route::{Router, Score};
pub(crate) use route::{combined, expert};
pub(crate) use rule::Operands;
pub use sinkhorn::Balance;
pub use weights::{picked_row, row_norm};
pub(crate) use windows::windows_misfit;

use super::value::{F32, ValueType};
use crate::eval::EvalError;
use crate::eval::Value;
use rule::{Rule, Types};

table::operations! {
    /// `embed(table [V,H], tokens i32[T]) → [T,H]`: row `tokens[i]` of the table.
    Embed "embed" Run (table: Table, tokens: Input(Tokens)) moves;
    /// `embed_positions(table [C,H], positions i32[T]) → [T,H]`: row `positions[i]` of the table,
    /// which has one for every position (learned positions), or with `every` and `shift` row
    /// `⌊(positions[i] + shift)/every⌋` (factors that grow in steps).
    EmbedPositions "embed_positions" {
        /// Positions that have a row in common.
        every: usize = 1,
        /// Added to positions before they are divided by that.
        shift: usize = 0,
    } Run (table: Table, positions: Input(Positions)) moves;
    /// `embed_types(table [S,H], types i32[T]) → [T,H]`: row `types[i]` of the table, which says how
    /// many types there are.
    EmbedTypes "embed_types" Run (table: Table, types: Input(Types)) moves;
    /// `token_ids(tokens i32[T]) → [T,1]`: ids as numbers, exact below 2²⁴.
    TokenIds "token_ids" Run (tokens: Input(Tokens));
    /// `given_rows(rows f32[T,K]) → [T,K]`: the rows that the caller of the step gives with its tokens.
    GivenRows "given_rows" Run (rows: Input(Given)) moves;
    /// `substitute{token}(x [T,H], tokens i32[T], rows f32[T,H]) → [T,H]`: where a token is `token`, which
    /// stands for a part of an image or the like, the row that the caller of the step gives with it, else the
    /// row of `x`. A caller whose tokens are all others gives no rows.
    Substitute "substitute" {
        /// The id of the tokens that rows are given for.
        token: usize,
    } Run (x: Any, tokens: Input(Tokens), rows: Input(Given));
    /// `embed_hashed{factors,sizes}(table [V,H], ids [T,N]) → [T,S·H]`: rows of a table by hashes of
    /// several tokens' ids, side by side (n-grams, as in Qwen4's per-layer embeddings). There are `S`
    /// sizes in `N − 1` equal runs; the hashes of run `r` are of the first `r + 2` ids: with `id·factor`
    /// modulo 2⁶⁴ joined by exclusive or, row `Σ sizes before + (id₀·f₀ ⊕ … ⊕ id_{r+1}·f_{r+1}) mod size`.
    EmbedHashed "embed_hashed" {
        /// Multiply ids, one each.
        factors: Vec<usize>,
        /// Rows of the table that each hash chooses from, one part after the other.
        sizes: Vec<usize>,
    } Run (table: Table, ids: Any);
    /// `matmul(x [M,K], w [N,K]) → [M,N]`: `x·wᵀ`, accumulated in f32 or better.
    MatMul "matmul" Run (x: Any, w: Matrix);
    /// `route{…}(logits [T,E], bias [E]) → [T,2·top]`: the numbers of the `top` best experts in the
    /// order of their ranking, then their weights: see [`Router`].
    Route "route" {
        /// Score of the logits.
        score: Score,
        /// Experts chosen.
        top: usize,
        /// Weights are divided by their sum.
        normalize: bool,
        /// Added to that sum.
        eps: F32,
        /// Multiplies weights.
        scale: F32,
        /// Groups of experts.
        groups: usize,
        /// Number of groups from which experts may be chosen.
        kept: usize,
        /// Groups are ranked by their two best experts.
        pairs: bool,
    } Run (logits: Deciding, bias: Weight);
    /// `expert_matmul{experts,top}(x [T,K] or [T,top·K], w [E·N,K], routes [T,2·top]) → [T,top·N]`:
    /// in each of `top` slots `x·wₑᵀ`, the slot's expert `e` being that of the routes and its
    /// matrix the rows `e·N..(e+1)·N`; `x` is the same in all slots, or each slot's own. With `cols`
    /// a slot has the first `cols` columns of these; the rows of the others are padding.
    ExpertMatMul "expert_matmul" {
        /// Experts.
        experts: usize,
        /// Slots.
        top: usize,
        /// Columns of a slot's result; 0 = all.
        cols: usize = 0,
    } Run (x: Any, w: Matrix, routes: Any);
    /// `head_matmul{heads,cols}(x [M,H·K], w [H·N,K]) → [M,H·C]`: the columns of each of `H` heads
    /// times a matrix of its own, the first `C` of the rows `h·N..(h+1)·N`; those after them are
    /// padding.
    HeadMatMul "head_matmul" {
        /// Heads.
        heads: usize,
        /// Columns of a head's result.
        cols: usize,
    } Run (x: Any, w: Matrix);
    /// `expert_vector{experts,top}(v [E·N], routes [T,2·top]) → [T,top·N]`: in each slot its
    /// expert's part of a vector, as of biases.
    ExpertVector "expert_vector" {
        /// Experts.
        experts: usize,
        /// Slots.
        top: usize,
    } Run (v: Weight, routes: Any);
    /// `combine(w [T,S], y [T,S·N]) → [T,N]`: `Σ w_s·y_s` over `S` runs of `N` columns, in order.
    Combine "combine" Run (w: Any, y: Any);
    /// Elementwise. Also on weights.
    Unary [of: UnaryOp] Either (x: Any);
    /// Elementwise; `b` may be `[M,N]`, a vector `[w]` with `w` dividing `N` (column `j` reads
    /// `b[j mod w]`: a bias, a norm gain, a per-head gain) or a scalar `[]`. Also on weights.
    Binary [of: BinaryOp] Either (a: Any, b: Any);
    /// Scalar constant `[]`.
    Const "const" {
        /// The number.
        value: F32,
    } Either ();
    /// `normalize{eps,width}(x [M,N]) → [M,N]`: each run of `width` columns divided by its root
    /// mean square, `x / √(mean(x²) + eps)` (RMSNorm without gain, arXiv 1910.07467). `width = N`
    /// for the usual norm, `head_dim` for QK norm.
    Normalize "normalize" {
        /// Added to the mean square.
        eps: F32,
        /// Columns per run.
        width: usize,
    } Run (x: Any);
    /// `standardize{eps,width}(x [M,N]) → [M,N]`: `normalize` of `x` less the mean of each run
    /// (LayerNorm without gain and bias, arXiv 1607.06450).
    Standardize "standardize" {
        /// Added to the variance.
        eps: F32,
        /// Columns per run.
        width: usize,
    } Run (x: Any);
    /// `absmax_scale{width,most,least}(x [M,N]) → [M,2·N/width]`: of each run of `width` columns `most/m`, then of
    /// each `m/most`, `m` being its largest magnitude or `least`: see [`RowScale`].
    AbsMaxScale "absmax_scale" {
        /// Columns per run.
        width: usize,
        /// The largest code.
        most: F32,
        /// Taken where the largest magnitude is smaller.
        least: F32,
    } Run (x: Any);
    /// `sinkhorn{side,rounds,eps}(x [M,side²]) → [M,side²]`: each row as a square matrix: the softmax of
    /// each column, plus `eps`; then `rounds` times its rows, and between them its columns, divided by
    /// their sums plus `eps`: see [`Balance`].
    Sinkhorn "sinkhorn" {
        /// Rows of the matrix, and columns.
        side: usize,
        /// How often rows are divided.
        rounds: usize,
        /// Added to elements first, and to sums.
        eps: F32,
    } Run (x: Deciding);
    /// `rope_table{scale}(positions i32[T], inv_freq [D/2]) → [T,D]`: `D/2` cosines, then `D/2`
    /// sines of `f32(position · inv_freq)`, times `scale` (the attention factor of YaRN, else 1).
    /// With a border `inv_freq` is `[D]`: `D/2` frequencies of positions before the border, then
    /// `D/2` of the others. With `most`, positions beyond it count as it.
    RopeTable "rope_table" {
        /// Multiplies sines and cosines.
        scale: F32,
        /// First position with the second half of the frequencies; 0 = all have the same.
        border: usize = 0,
        /// The largest position; 0 = there is none.
        most: usize = 0,
    } Run (positions: Input(Positions), inv_freq: Weight);
    /// `rope_axes{scale}(axes i32[T,A], inv_freq [A·D/2]) → [T,D]`: the same of positions along `A` axes
    /// ([`llmcc_abi::AXES`]), each with a row of frequencies: an angle is the sum of
    /// `f32(position · inv_freq)` along them, in f32. A pair that turns along one axis (M-RoPE of Qwen2-VL, arXiv
    /// 2409.12191) has frequency 0 along the others.
    RopeAxes "rope_axes" {
        /// Multiplies sines and cosines.
        scale: F32,
    } Run (axes: Input(Axes), inv_freq: Weight);
    /// `rope{head_dim}(x [M,N], table [M,D]) → [M,N]`: rotates each head's pairs `(j, j + D/2)`
    /// (half-split layout of RoFormer, arXiv 2104.09864, as in Hugging Face Llama):
    /// `y_j = x_j·cos_j − x_{j+D/2}·sin_j`, `y_{j+D/2} = x_{j+D/2}·cos_j + x_j·sin_j`.
    Rope "rope" {
        /// Columns per head.
        head_dim: usize,
    } Run (x: Any, table: Any);
    /// `kv_append(kv, k [T,KD], v [T,VD], positions) → kv`: stores each token's key and value at
    /// its position in its sequence. In a latent state `k` is the part of a key before the value;
    /// where there is none, the key being the value, it is `v` again. In a state with a row for
    /// several tokens (`every`) the last token of each of the sequence's windows of that length
    /// stores one.
    KvAppend "kv_append" Run (kv: Replaced, k: Any, v: Any, positions: Input(Positions));
    /// `attention(q [T,QD], kv, positions, sinks [heads]?, bias [heads·w]?) → [T,heads·V]`: softmax
    /// attention of each token over positions `0..=p` of its sequence (the last `window` of them
    /// where the state has a window); query head `h` reads KV head `h / (heads/kv_heads)`. A head's
    /// sink is one more score, of a value that is zero. The bias is added to scores: by one number
    /// per head, its slope, `−slope·|j − i|` (ALiBi, arXiv 2108.12409); by an odd number `2r + 1`
    /// of them the one at `r + clamp(j − i, −r, r)` (T5, arXiv 1910.10683, its buckets written
    /// out); by an even number the one at `j`, or the last (slopes times positions, rounded). A
    /// state whose keys are its values is read as any other; in a state that has a row for several
    /// tokens (`every`) a token sees the rows of windows that are whole with it, and zeros if there
    /// is none.
    Attention "attention" {
        /// Query heads.
        heads: usize,
        /// Multiplies `q·k`.
        scale: F32,
        /// Scores are `softcap·tanh(score/softcap)`; 0 = as they are.
        softcap: F32 = F32::new(0.0),
        /// Otherwise a token sees all positions that its sequence has in the state, those of this step
        /// included, or those before an end that the step gives for it; in a window those less than `window` away on
        /// either side.
        causal: bool = true,
        /// The window is a chunk: sequences are cut at multiples of it, and a token sees its own
        /// chunk up to itself (Llama 4).
        chunked: bool = false,
        /// The last operand is the bias.
        biased: bool = false,
        /// After the heads' values come the maxima of each head's scores `m [heads]`, and the sums
        /// of `e^(score − m)`, the sink among them: with these, the results of two attentions join
        /// into a softmax over both. Without any score, of a key or a sink: f32's least number and 0.
        sums: bool = false,
    } Run (q: Any, kv: State, positions: Input(Positions)) + (sinks: Weight, bias: Weight);
    /// `latent_attention(q [T,heads·V], own [T,heads·K], kv, positions, sinks [heads]?) →
    /// [T,heads·V]`: causal attention over a latent state, whose keys are `K` columns of their own,
    /// which `own` is multiplied with, followed by the value's `V`, which `q` is (DeepSeek-V2, arXiv
    /// 2405.04434). Sinks are as in `attention`.
    LatentAttention "latent_attention" {
        /// Query heads.
        heads: usize,
        /// Multiplies `q·k`.
        scale: F32,
    } Run (q: Any, own: Any, kv: State, positions: Input(Positions)) + (sinks: Weight);
    /// `select{heads,top}(q [T,heads·D], w [T,heads], kv, positions) → [T,top]`: numbers of the `top` rows
    /// of a state of rows of `D` (keys that are values) with the highest scores among those that a token
    /// sees, ascending, then −1 where it sees fewer. A row's score is `Σ_h w_h·max(q_h·row, 0)`; of equal
    /// scores the row with the lower number comes first, NaN after all numbers (the lightning indexer of
    /// DeepSeek-V3.2, arXiv 2512.02556).
    Select "select" {
        /// Heads of the queries.
        heads: usize,
        /// Rows selected.
        top: usize,
    } Run (q: Deciding, w: Deciding, kv: State, positions: Input(Positions));
    /// `select_windows(q [T,heads·D], bounds, positions) → [T,kv_heads·(windows+1)·every]`: for each KV head the
    /// numbers of the tokens of `windows` windows, those with the highest scores among the windows before the token's
    /// own, and of its own up to the token, ascending, then −1. A row of `bounds` has the least elements `[kv_heads,D]`
    /// of a window's keys, then the largest; a score is the sum over the queries of a KV head of the largest product
    /// with each element between its bounds (Quest, arXiv 2406.10774). Equal scores go by number, NaN comes last.
    SelectWindows "select_windows" {
        /// Query heads.
        heads: usize,
        /// KV heads, each with a selection of its own.
        kv_heads: usize,
        /// Windows selected beside a token's own.
        windows: usize,
    } Run (q: Any, bounds: State, positions: Input(Positions));
    /// `window_bounds{width}(x [T,C], positions, state [1,2,C]) → [T,2·C]`: column by column the least value of a
    /// token's window of `width` tokens so far, then the largest ones.
    WindowBounds "window_bounds" {
        /// Tokens of a window.
        width: usize,
    } Run (x: Any, positions: Input(Positions), state: Updated);
    /// `selected_attention(q [T,QD], kv, positions, selection [T,N], sinks [heads]?) → [T,heads·V]`:
    /// `attention` over the rows of the state that the token's selection names. Its numbers ascend, and end
    /// with the first that is of no row which the token sees.
    SelectedAttention "selected_attention" {
        /// Query heads.
        heads: usize,
        /// Multiplies `q·k`.
        scale: F32,
        /// As in `attention`.
        sums: bool = false,
        /// The selection has as many numbers for each KV head, one head after the other.
        by_head: bool = false,
    } Run (q: Any, kv: State, positions: Input(Positions), selection: Any) + (sinks: Weight);
    /// `selected_latent_attention(q [T,heads·V], own [T,heads·K], kv, positions, selection [T,N], sinks
    /// [heads]?) → [T,heads·V]`: `latent_attention` over the rows of the state that the token's selection
    /// names, as in `selected_attention`.
    SelectedLatentAttention "selected_latent_attention" {
        /// Query heads.
        heads: usize,
        /// Multiplies `q·k`.
        scale: F32,
    } Run (q: Any, own: Any, kv: State, positions: Input(Positions), selection: Any) + (sinks: Weight);
    /// `relative_attention(q [T,heads·D], kv, positions, keys [heads·D·w], queries [heads·D·w]) →
    /// [T,heads·V]`: attention in which distances have keys and queries of their own (DeBERTa,
    /// arXiv 2006.03654). Of the odd number `w = 2r + 1` of distances, the one from the query at
    /// `i` to the key at `j` is `δ = r + clamp(j − i, −r, r)`, its key `K_δ` of head `h` is
    /// `keys[(h·D + d)·w + δ]` for each `d`, its query `Q_δ` likewise; the score is `scale·(q·k +
    /// q·K_δ + Q_δ·k)`. A token sees all positions of its sequence up to the largest of this step.
    RelativeAttention "relative_attention" {
        /// Query heads.
        heads: usize,
        /// Multiplies the three products.
        scale: F32,
    } Run (q: Any, kv: State, positions: Input(Positions), keys: Weight, queries: Weight);
    /// `evicting_attention(q [T,heads·K], k [T,kv_heads·K], v [T,kv_heads·V], positions, state
    /// [kv_heads,K+V+3,places]) → [T,heads·V]`: softmax attention over the tokens of the sequence that the state has,
    /// after that of the row has joined them. When there are `budget` tokens, the `drop` ones with the lowest scores
    /// leave after the row, in each KV head its own: see [`Criterion`]. So a sequence keeps at most `budget` tokens,
    /// and drops the same ones however its steps are cut.
    EvictingAttention "evicting_attention" {
        /// Query heads.
        heads: usize,
        /// Multiplies `q·k`.
        scale: F32,
        /// Scores of tokens.
        criterion: Criterion,
        /// Tokens that the state has when some are dropped.
        budget: usize,
        /// Last tokens that are never dropped, that of the row among them.
        recent: usize,
        /// Tokens dropped at once.
        drop: usize = 1,
        /// Last queries that count, for criteria that say so.
        window: usize = 1,
        /// See the criteria that have one.
        level: F32 = F32::new(0.0),
        /// All KV heads drop the same tokens, by the sum of their scores.
        together: bool = false,
    } Run (q: Any, k: Any, v: Any, positions: Input(Positions), state: Updated);
    /// `causal_conv(x [T,C], taps [W,C], state [1,W−1,C]) → [T,C]`: each column convolved with its
    /// values at the `W − 1` tokens of the sequence before (zero before the first), which the state
    /// keeps: `y_t = Σ taps_{W−1−i} · x_{t−i}`.
    CausalConv "causal_conv" Run (x: Any, taps: Weight, state: Updated);
    /// `recurrence{update}(q [T,G·K], k [T,G·K], v [T,H·V], decay, with, state [H,K,V], write?) →
    /// [T,H·V]`: in each head a matrix `S`, zero at first, with `q` and `k` of group `h/(H/G)`.
    /// Token by token `S ← a·S`, then the update, then `y = qᵀS`: see [`Update`]. `decay`: `[T,H]`,
    /// a number `a` per head, or `[T,H·K]`, one per row of `S`; of a scan `[T,H·V]`, a step of each
    /// column. `with`: `[T,H]` (rates), `[T,G·K]` (keys whose values are erased), `[H·K]` (weights
    /// of the token itself) or `[H·K,V]` (rates of a scan; also as a vector). `write`: `[T,G·K]`.
    /// Every operand with a row per token, except `v`, may be a vector, which is the same for all.
    /// Linear attention with decay (RetNet, arXiv 2307.08621; GLA, 2312.06635; Mamba-2,
    /// 2405.21060), the gated delta rule (2412.06464), RWKV-5 and 6 (2404.05892), RWKV-7
    /// (2503.14456), the selective scan of Mamba (2312.00752) and, with `K` = 1, Griffin's linear
    /// unit (2402.19427).
    Recurrence "recurrence" {
        /// The update of the state.
        update: Update,
    } Run (q: Any, k: Any, v: Any, decay: Any, with: Any, state: Updated) + (write: Any);
    /// `wkv(k [T,C], v [T,C], decay [C], bonus [C], state [1,3,C]) → [T,C]`: column by column the
    /// mean of the sequence's values so far, with weights `e^k`, which decay by `e^decay` from token
    /// to token; that of the token itself is `e^(k + bonus)` (RWKV-4, arXiv 2305.13048). The state
    /// has the weighted values and the weights, both over `e^m`, and `m`, so that nothing overflows.
    Wkv "wkv" Run (k: Any, v: Any, decay: Weight, bonus: Weight, state: Updated);
    /// `window_means(k [T,S·C], v [T,S·C], places [W,S·C], positions i32[T], state [1,3·S,C]) → [T,C]`:
    /// column by column the mean of a window's values so far, with weights `e^(k + places_j)`, `j` being
    /// a token's place in its window of `W` tokens. With `S` = 2 the first `C` columns of a token count
    /// in the window after its own, the others in its own (DeepSeek-V4, 2026, which has rows of windows
    /// in common, one for the last token of each). The state has for each series, that of the window at
    /// hand first, the weighted values and the weights, both over `e^m`, and `m`, so that nothing overflows.
    WindowMeans "window_means" Run (k: Any, v: Any, places: Weight, positions: Input(Positions), state: Updated);
    /// `adapter_matmul{parts}(x [T,P·K], adapter [N,K]) → [T,N]`: with the matrix `W` of the
    /// adapter that a token's sequence has, `x·Wᵀ` by `P` parts: rows of `W` that belong together
    /// multiply `K` columns of their own. Zero for a sequence without an adapter. Two of them are
    /// an adapter's addition to a product (LoRA, arXiv 2106.09685).
    AdapterMatMul "adapter_matmul" {
        /// Rows of each part: whole blocks of 16.
        parts: Vec<usize>,
    } Run (x: Any, adapter: State);
    /// `gather_rows(x [T,N], rows i32[R]) → [R,N]`.
    GatherRows "gather_rows" Run (x: Any, rows: Input(OutRows)) moves;
    /// `slice_cols{start,len}(x [M,N]) → [M,len]`.
    SliceCols "slice_cols" {
        /// First column.
        start: usize,
        /// Columns.
        len: usize,
    } Run (x: Any) moves;
    /// `concat_cols(x₁, x₂, …)`: side by side.
    ConcatCols "concat_cols" Run (x: Any; more) moves;
    /// `pick_cols(x [M,N], order [L]) → [M,L]`: column `j` is column `order_j` of `x`.
    PickCols "pick_cols" Run (x: Any, order: Weight);
    /// `transpose(w [a,b]) → [b,a]`; of `[e,a,b]`, each of `e` matrices (weights only).
    Transpose "transpose" Pack (w: Any) moves;
    /// `scale_cols(w [n,k], g [k]) → [n,k]`: column `j` times `g_j` (weights only, in f32).
    ScaleCols "scale_cols" Pack (w: Any, g: Any);
    /// `scale_rows(w [n,k], g [n]) → [n,k]` (weights only, in f32).
    ScaleRows "scale_rows" Pack (w: Any, g: Any);
    /// `concat_rows(w₁ [a,k], w₂ [b,k], …) → [a+b,k]`; also joins vectors (weights only).
    ConcatRows "concat_rows" Pack (w: Any; more) moves;
    /// `slice_rows{start,len}(w [n,k]) → [len,k]`; also of vectors (weights only).
    SliceRows "slice_rows" {
        /// First row.
        start: usize,
        /// Rows.
        len: usize,
    } Pack (w: Any) moves;
    /// `look_up(w [n], order [m]) → [m]`: element `i` is the one at `order_i` (weights only).
    LookUp "look_up" Pack (w: Any, order: Any);
    /// `unit_rows(w [n,k]) → [n,k]`: each row divided by its Euclidean norm, or by 1e-12 if that is
    /// more (weights only).
    UnitRows "unit_rows" Pack (w: Any);
    /// `standard_rows{eps}(w [n,k]) → [n,k]`: each row less its mean, over the root of the mean square of
    /// that and `eps` (weights only): LayerNorm without gains.
    StandardRows "standard_rows" {
        /// Added to the mean square.
        eps: F32,
    } Pack (w: Any);
    /// `mul_transposed(a [m,k], b [n,k]) → [m,n]`: `a·bᵀ` (weights only).
    MulTransposed "mul_transposed" Pack (a: Any, b: Any);
    /// `row{index}(w [n,k]) → [k]`: one row as a vector (weights only).
    Row "row" {
        /// Which.
        index: usize,
    } Pack (w: Any) moves;
    /// `place_cols(w [n,k], order [k]) → [n,k]`: column `order_j` is column `j` of `w`, of an order
    /// that names each column once (weights only): it undoes a checkpoint's sorting of columns.
    PlaceCols "place_cols" Pack (w: Any, order: Any);
    /// `flatten(w [e,n,k]) → [e·n,k]`, `flatten(w [e,n]) → [e·n]`: the matrices of a stack one
    /// below the other (weights only).
    Flatten "flatten" Pack (w: Any) moves;
    /// `pick_rows{run,start,len,pairs}(w [n,k]) → [n/run·len,k]`; also of vectors (weights only).
    /// From each run of `run` rows the `len` from `start` on: a part of each head. The first
    /// `pairs` of these are reordered from neighbours `(2j, 2j+1)` to halves `(j, j + pairs/2)`.
    PickRows "pick_rows" {
        /// Rows per run.
        run: usize,
        /// First row of a run that is kept.
        start: usize,
        /// Rows of a run that are kept.
        len: usize,
        /// Rows of these that change places; even.
        pairs: usize,
    } Pack (w: Any) moves;
    /// `fill_rows{run,to}(w [n,k]) → [n/run·to,k]`; also of vectors (weights only). Each run of
    /// `run` rows is padded with rows of zeros to `to` rows: matrices of experts and heads, each
    /// beginning with a block.
    FillRows "fill_rows" {
        /// Rows per run.
        run: usize,
        /// Rows of a run with its padding.
        to: usize,
    } Pack (w: Any) moves;
    /// `repeat_each{times}(w [n]) → [n·times]`: each element so often, one after the other (weights
    /// only).
    RepeatEach "repeat_each" {
        /// How often.
        times: usize,
    } Pack (w: Any) moves;
    /// A newcomer, which lives in the tests: `riffle{by,left,rows,but}(x [M,N]) → [M,N]`, see
    /// `newcomer.rs`.
    #[cfg(test)]
    Riffle "riffle" {
        /// Columns are rotated by so many.
        by: usize,
        /// To the left.
        left: bool,
        /// Which rows.
        rows: newcomer::Parity,
        /// Columns that are cleared first.
        but: Vec<usize>,
    } Either (x: Any);
}

impl Op {
    /// Name in `.lir` text, without attributes.
    pub fn name(&self) -> &'static str {
        self.head().name()
    }

    /// When it is computed and which kinds of values it reads.
    pub fn facts(&self) -> Facts {
        self.head().facts()
    }

    /// The result type for arguments of the given types.
    ///
    /// # Errors
    /// Says in words which rule the arguments break.
    pub fn infer(&self, args: &[ValueType]) -> Result<ValueType, String> {
        let (name, facts, n) = (self.name(), self.facts(), args.len());
        let wanted = facts.args.len();
        if facts.variadic && n < wanted {
            return Err(format!(
                "`{name}` needs {}",
                if wanted == 1 { "an argument".into() } else { format!("{wanted} arguments") }
            ));
        }
        let most = wanted + facts.optional.len();
        if !facts.variadic && !(wanted..=most).contains(&n) {
            let wanted = if most > wanted { format!("{wanted} to {most}") } else { wanted.to_string() };
            return Err(format!("`{name}` takes {wanted} arguments, not {n}"));
        }
        self.with(|rule| rule.infer(&Types { name, args }))
    }

    /// The result for arguments of the types that [`Op::infer`] accepts.
    pub(crate) fn eval(&self, args: Operands<'_>) -> Result<Value, EvalError> {
        self.with(|rule| rule.eval(args))
    }
}

impl Head {
    /// Whether weights are computed by it.
    pub fn packs(self) -> bool {
        self.facts().packs()
    }
}
