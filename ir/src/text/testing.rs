//! Random modules, kernels and plans for tests (feature `testing`).
//!
//! They are well formed as text demands (names are unique, references exist) but not well typed:
//! for printing, not for running.

use crate::graph::{
    Arg, Attr, AttrKind, Balance, BinaryOp, Call, Criterion, Entry, Eviction, F32, Func, Head, Input, ModelInfo,
    Module, Node, Op, Param, Role, Router, RowScale, Score, UnaryOp, Update, Value, ValueType, Weight,
};
use crate::kernel::{self, Body, Expr, Kernel, Norm, ParamKind, Prologue, RowElem, Segment, Store};
use crate::kv::{First, KvDType, KvSpec};
use crate::output::{EntryOutput, Output, Pool, Rows, RowsName};
use crate::plan::{
    Buffer, Candidates, Launch, Operand, PackedWeight, Plan, PlanEntry, Regime, Slot, Storage, WeightExpr,
};
use crate::quant::{FORMATS, Format, Packing};
use crate::state::{AdapterSpec, FixedSpec, StateSpec};
use crate::tap::{Routes, Tap, TappedWeight};
use crate::ty::{DType, Dim, TensorType};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use std::collections::HashSet;

/// A name: usual, odd, or hostile.
pub fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z][a-z0-9_]{0,6}(\\.[a-z0-9]{1,3}){0,2}",
        1 => select(vec!["", "0", "12", "a.", "a..b", ".a", "$x", "x y", "\"", "\\", "%x", "kv", "state", "T", "a\nb", "ä", "\u{202e}", "\0", "}"])
            .prop_map(String::from),
        1 => any::<String>(),
    ]
}

fn names(count: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<String>> {
    vec(name(), count).prop_map(|names| {
        let mut seen = HashSet::new();
        let unique = |(i, n): (usize, String)| if seen.insert(n.clone()) { n } else { format!("{n}~{i}") };
        names.into_iter().enumerate().map(unique).collect()
    })
}

/// A size, small or any.
fn size() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0..5000usize, 1 => any::<usize>()]
}

/// A finite number of any magnitude.
pub fn real() -> impl Strategy<Value = f32> {
    prop_oneof![
        select(vec![0.0, -0.0, 1.0, -1.0, 1e-5, 1e-6, f32::MAX, f32::MIN_POSITIVE, 1e-45, 16_777_217.0]),
        any::<u32>().prop_map(|bits| Some(f32::from_bits(bits)).filter(|x| x.is_finite()).unwrap_or(0.5)),
    ]
}

fn index() -> impl Strategy<Value = kernel::Index> {
    select(vec![kernel::Index::Tokens, kernel::Index::Positions, kernel::Index::Types])
}

/// An attribute: any bits, finite or not.
fn attr() -> impl Strategy<Value = F32> {
    prop_oneof![8 => real(), 1 => any::<u32>().prop_map(f32::from_bits)].prop_map(F32::new)
}

fn dim() -> impl Strategy<Value = Dim> {
    prop_oneof![2 => size().prop_map(Dim::Static), 1 => Just(Dim::Tokens), 1 => Just(Dim::Rows)]
}

fn tensor() -> impl Strategy<Value = TensorType> {
    let dtype = select(DType::ALL.iter().map(|(t, _)| *t).collect::<Vec<_>>());
    (dtype, vec(dim(), 0..4)).prop_map(|(dtype, shape)| TensorType { dtype, shape })
}

fn fixed() -> impl Strategy<Value = FixedSpec> {
    (size(), size(), size()).prop_map(|(heads, rows, cols)| FixedSpec { heads, rows, cols })
}

fn adapter() -> impl Strategy<Value = AdapterSpec> {
    (size(), size(), size(), select(vec![DType::Bf16, DType::F32])).prop_map(|(n, k, slots, dtype)| AdapterSpec {
        n,
        k,
        slots,
        dtype,
    })
}

fn state() -> impl Strategy<Value = StateSpec> {
    prop_oneof![
        3 => kv().prop_map(StateSpec::Paged),
        1 => fixed().prop_map(StateSpec::Fixed),
        1 => adapter().prop_map(StateSpec::Adapter),
    ]
}

fn kv() -> impl Strategy<Value = KvSpec> {
    let dtype = select(KvDType::ALL.iter().map(|(t, _)| *t).collect::<Vec<_>>());
    let first = option::of((size(), size()).prop_map(|(rows, behind)| First { rows, behind }));
    (dtype, size(), (size(), size(), any::<bool>()), (option::of(size()), size(), first)).prop_map(
        |(dtype, kv_heads, dims, (window, every, first))| KvSpec {
            dtype,
            kv_heads,
            key_dim: dims.0,
            value_dim: dims.1,
            latent: dims.2,
            window,
            every,
            first,
        },
    )
}

fn value_type() -> impl Strategy<Value = ValueType> {
    prop_oneof![3 => tensor().prop_map(ValueType::Tensor), 1 => state().prop_map(ValueType::from)]
}

fn unary() -> impl Strategy<Value = UnaryOp> {
    select(UnaryOp::ALL.iter().map(|(o, _)| *o).collect::<Vec<_>>())
}

fn binary() -> impl Strategy<Value = BinaryOp> {
    select(BinaryOp::ALL.iter().map(|(o, _)| *o).collect::<Vec<_>>())
}

/// An operation of the table that is one of `wanted`, with any attributes.
fn op_where(wanted: fn(Head) -> bool) -> impl Strategy<Value = Op> {
    let heads: Vec<Head> = Head::names().into_iter().filter_map(Head::parse).filter(|head| wanted(*head)).collect();
    select(heads).prop_flat_map(|head| {
        let values: Vec<BoxedStrategy<Attr>> = head.attributes().iter().map(|(_, kind)| attr_of(*kind)).collect();
        values.prop_map(move |values| head.build(&values).expect("values of the declared kinds"))
    })
}

/// Any operation with any attributes.
pub fn op() -> impl Strategy<Value = Op> {
    op_where(|_| true)
}

fn attr_of(kind: AttrKind) -> BoxedStrategy<Attr> {
    match kind {
        AttrKind::Size => size().prop_map(Attr::Size).boxed(),
        AttrKind::Real => attr().prop_map(Attr::Real).boxed(),
        AttrKind::Flag => any::<bool>().prop_map(Attr::Flag).boxed(),
        AttrKind::Word(words) => select(words).prop_map(Attr::Word).boxed(),
        AttrKind::Sizes => vec(size(), 0..4).prop_map(|sizes| Attr::Sizes(sizes.into())).boxed(),
    }
}

/// Indices below `limit`; none if there is nothing to refer to.
fn pick(indices: &[Index], limit: usize) -> Vec<usize> {
    if limit == 0 { vec![] } else { indices.iter().map(|i| i.index(limit)).collect() }
}

/// A function of this name.
fn func_named(name: String) -> impl Strategy<Value = Func> {
    let role = select(vec![Role::Data, Role::Weight, Role::SharedWeight, Role::State]);
    let param = (value_type(), role);
    let node = (op(), vec(any::<Index>(), 0..4), value_type());
    (names(0..6), vec(param, 6), vec(node, 0..12), vec(any::<Index>(), 0..3)).prop_map(
        move |(names, params, nodes, results)| {
            let params: Vec<Param> =
                names.into_iter().zip(params).map(|(name, (ty, role))| Param { name, ty, role }).collect();
            let values = |indices: &[Index], limit| pick(indices, limit).into_iter().map(|i| Value(i as u32)).collect();
            let results = values(&results, params.len() + nodes.len());
            let nodes = nodes
                .into_iter()
                .enumerate()
                .map(|(i, (op, args, ty))| Node { op, args: values(&args, params.len() + i), ty })
                .collect();
            Func { name: name.clone(), params, nodes, results }
        },
    )
}

/// A function.
pub fn func() -> impl Strategy<Value = Func> {
    name().prop_flat_map(func_named)
}

fn info() -> impl Strategy<Value = ModelInfo> {
    (size(), size(), size()).prop_map(|(vocab, hidden, max_context)| ModelInfo { vocab, hidden, max_context })
}

/// An output with the rows that are asked for.
fn requested() -> impl Strategy<Value = Output> {
    let names = select(RowsName::ALL.iter().map(|(n, _)| *n).collect::<Vec<_>>());
    let pools = select(Pool::ALL.iter().map(|(p, _)| *p).collect::<Vec<_>>());
    let rows = (names, size(), pools, any::<bool>());
    let rows = rows.prop_map(|(name, width, pool, normalize)| Output::Rows(Rows { name, width, pool, normalize }));
    prop_oneof![Just(Output::Logits), Just(Output::Image), rows]
}

fn weight() -> impl Strategy<Value = Weight> {
    (name(), tensor(), option::weighted(0.3, vec(real(), 0..8))).prop_map(|(name, ty, data)| Weight { name, ty, data })
}

fn funcs() -> impl Strategy<Value = Vec<Func>> {
    names(1..4).prop_flat_map(|names| names.into_iter().map(func_named).collect::<Vec<_>>())
}

/// Outputs of an entry: at least one, each kind once, at places that `at` makes.
fn outputs<A: Strategy<Value = usize> + Clone>(at: A) -> impl Strategy<Value = Vec<EntryOutput>> {
    let both = (requested(), at.clone(), at, 0..3usize);
    both.prop_map(|(output, first, second, which)| {
        let all = [EntryOutput { output, at: first }, EntryOutput { output: Output::Hidden, at: second }];
        match which {
            0 => all[..1].to_vec(),
            1 => all[1..].to_vec(),
            _ => all.to_vec(),
        }
    })
}

/// Taps whose places are below `places`.
fn taps(places: usize) -> impl Strategy<Value = Vec<Tap>> {
    let weight = (name(), option::of(size())).prop_map(|(name, expert)| TappedWeight { name, expert });
    let routes = (0..places, size(), size(), any::<bool>());
    let routes = routes.prop_map(|(at, experts, top, apart)| Routes { at, experts, top, apart });
    let tap = (0..places, size(), dim(), size(), option::of(routes), vec(weight, 0..3));
    let tap =
        tap.prop_map(|(at, call, rows, columns, routes, weights)| Tap { at, call, rows, columns, routes, weights });
    vec(tap, 0..3)
}

/// Entries with names of their own over these functions; none if one has no result, for its outputs.
fn entries(funcs: Vec<Func>) -> impl Strategy<Value = Option<Vec<Entry>>> {
    let named = names(1..3)
        .prop_flat_map(move |names| names.into_iter().map(|name| entry(name, funcs.clone())).collect::<Vec<_>>());
    named.prop_map(|entries| entries.into_iter().collect())
}

fn entry(name: String, funcs: Vec<Func>) -> impl Strategy<Value = Option<Entry>> {
    let input = select(Input::ALL.iter().map(|(i, _)| *i).collect::<Vec<_>>());
    let arg = prop_oneof![
        any::<Index>().prop_map(Ok),
        size().prop_map(|i| Err(Arg::Weight(i))),
        size().prop_map(|i| Err(Arg::State(i))),
        input.prop_map(|i| Err(Arg::Input(i))),
    ];
    let call = (any::<Index>(), vec(arg, 0..6));
    let outputs = outputs(any::<u16>().prop_map(usize::from));
    (vec(call, 1..6), outputs, taps(64), any::<bool>()).prop_map(move |(calls, mut outputs, mut taps, only)| {
        let mut results = 0;
        let mut made = vec![];
        for (func, args) in calls {
            let func = func.index(funcs.len());
            let arg = |a: Result<Index, Arg>| match a {
                Ok(_) if results == 0 => Arg::Input(Input::Tokens),
                Ok(i) => Arg::Value(i.index(results)),
                Err(a) => a,
            };
            made.push(Call { func, args: args.into_iter().map(arg).collect() });
            results += funcs[func].results.len();
        }
        outputs.iter_mut().for_each(|o| o.at %= results.max(1));
        taps.iter_mut().for_each(|t| {
            t.at %= results.max(1);
            t.routes.iter_mut().for_each(|r| r.at %= results.max(1));
        });
        // An entry has outputs, taps or both.
        if only && !taps.is_empty() {
            outputs.clear();
        }
        let context = (results % 3 == 1).then_some(results + 7);
        (results > 0).then(|| Entry { name: name.clone(), calls: made, outputs, taps, context })
    })
}

/// A module.
pub fn module() -> impl Strategy<Value = Module> {
    let parts = (name(), info(), vec(weight(), 0..4), vec(state(), 0..3), funcs());
    let whole = parts.prop_flat_map(|(name, info, weights, states, funcs)| {
        entries(funcs.clone()).prop_map(move |entries| {
            Some(Module {
                name: name.clone(),
                info,
                weights: weights.clone(),
                states: states.clone(),
                funcs: funcs.clone(),
                entries: entries?,
            })
        })
    });
    whole.prop_filter_map("an output needs a result", |module| module)
}

/// A storage format of the table.
pub fn format() -> impl Strategy<Value = Format> {
    let all = FORMATS.iter().flat_map(|d| d.formats().flat_map(|f| [f, f.with_packing(Packing::Fragment)]));
    select(all.collect::<Vec<_>>())
}

fn elem() -> impl Strategy<Value = RowElem> {
    prop_oneof![
        Just(RowElem::F32),
        Just(RowElem::F16),
        Just(RowElem::Bf16),
        Just(RowElem::Fp8),
        size().prop_map(|group| RowElem::Q8 { group }),
        size().prop_map(|group| RowElem::I8 { group })
    ]
}

fn norm() -> impl Strategy<Value = Norm> {
    (attr(), size(), any::<bool>()).prop_map(|(eps, width, center)| Norm { eps, width, center })
}

fn param_kind() -> impl Strategy<Value = ParamKind> {
    prop_oneof![
        (dim(), size(), elem()).prop_map(|(rows, cols, elem)| ParamKind::Rows { rows, cols, elem }),
        (size(), size(), format()).prop_map(|(n, k, format)| ParamKind::Matrix { n, k, format }),
        size().prop_map(|len| ParamKind::Vector { len }),
        state().prop_map(ParamKind::State),
    ]
}

/// An expression over `params` operands.
fn expr(params: usize) -> impl Strategy<Value = Expr> {
    let leaf = prop_oneof![
        (0..4usize).prop_map(Expr::Acc),
        (0..params, size()).prop_map(|(param, start)| Expr::Rows { param, start }),
        (0..params).prop_map(Expr::Vector),
        attr().prop_map(Expr::Const),
        (0..params, 0..params, size()).prop_map(|(vector, routes, top)| Expr::Expert { vector, routes, top }),
        (0..params, 0..params).prop_map(|(rows, order)| Expr::Pick { rows, order }),
        (0..params, size(), 0..params, size()).prop_map(|(weights, from, y, count)| Expr::Combine {
            weights,
            from,
            y,
            count
        }),
    ];
    leaf.prop_recursive(6, 40, 2, move |inner| {
        prop_oneof![
            (unary(), inner.clone()).prop_map(|(op, x)| Expr::Unary(op, Box::new(x))),
            (binary(), inner.clone(), inner.clone()).prop_map(|(op, a, b)| Expr::Binary(op, Box::new(a), Box::new(b))),
            (binary(), inner.clone(), inner.clone()).prop_map(|(op, a, b)| Expr::Binary(op, Box::new(a), Box::new(b))),
            (norm(), inner.clone()).prop_map(|(n, x)| Expr::Normalize(n, Box::new(x))),
            (size(), 0..params, inner).prop_map(|(head_dim, table, x)| Expr::Rope { head_dim, table, x: Box::new(x) }),
        ]
    })
}

fn segment(params: usize) -> impl Strategy<Value = Segment> {
    let store = prop_oneof![
        (0..params, size()).prop_map(|(param, start)| Store::Rows { param, start }),
        (0..params).prop_map(Store::KvKey),
        (0..params).prop_map(Store::KvValue),
    ];
    let segment = (size(), vec(0..params, 0..3), size(), expr(params), store);
    segment.prop_map(|(n, weights, tile_n, expr, store)| Segment { n, weights, tile_n, expr, store })
}

fn segments(params: usize) -> impl Strategy<Value = Vec<Segment>> {
    vec(segment(params), 0..4)
}

fn router() -> impl Strategy<Value = Router> {
    let score = select(&Score::ALL[..]);
    (score, size(), any::<bool>(), attr(), attr(), size(), size(), any::<bool>()).prop_map(
        |(score, top, normalize, eps, scale, groups, kept, pairs)| Router {
            score,
            top,
            normalize,
            eps,
            scale,
            groups,
            kept,
            pairs,
        },
    )
}

fn body(params: usize) -> impl Strategy<Value = Body> {
    let part = || option::of(0..params);
    let prologue = (option::of(norm()), part(), part(), elem());
    let prologue = option::of(prologue.prop_map(|(norm, gain, bias, elem)| Prologue { norm, gain, bias, elem }));
    prop_oneof![
        4 => (0..params, prologue, segments(params), size(), size()).prop_map(
            |(x, prologue, segments, tile_m, k_parts)| {
                Body::Matmul(kernel::Matmul { x, prologue, segments, tile_m, k_parts })
            },
        ),
        1 => (0..params, any::<bool>(), option::of(norm()), part(), part(), part(), 0..params).prop_map(
            |(x, gather, norm, gain, bias, residual, out)| {
                Body::RowNorm(kernel::RowNorm { x, gather, norm, gain, bias, residual, out })
            },
        ),
        1 => attention(params),
        2 => segments(params).prop_map(|segments| Body::Pointwise(kernel::Pointwise { segments })),
        1 => (0..params, index(), (size(), option::of(size())), attr(), part(), 0..params).prop_map(
            |(table, index, (every, shift), scale, add, out)| {
                Body::Embed(kernel::Embed { table, index, every, shift, scale, add, out })
            },
        ),
        1 => rope_table(params),
        1 => (0..params, 0..params, router(), 0..params)
            .prop_map(|(x, bias, router, out)| Body::Route(kernel::Route { x, bias, router, out })),
        2 => (0..params, part(), size(), size(), segment(params), size()).prop_map(
            |(x, routes, experts, top, segment, tile_m)| {
                Body::ExpertMatmul(kernel::ExpertMatmul { x, routes, experts, top, segment, tile_m })
            }),
        1 => (vec(0..params, 4), vec(size(), 2)).prop_map(|(p, n)| Body::CausalConv(kernel::CausalConv {
            x: p[0], start: n[0], taps: p[1], width: n[1], state: p[2], out: p[3],
        })),
        1 => (vec(0..params, 7), part(), vec(size(), 4), select(&Update::ALL[..])).prop_map(|(p, write, n, update)| {
            Body::Recurrence(kernel::Recurrence {
                q: p[0], q_start: n[0], k: p[1], k_start: n[1], groups: n[2], v: p[2], v_start: n[3],
                decay: p[3], update, with: p[4], write, state: p[5], out: p[6],
            })
        }),
        1 => (vec(0..params, 6), vec(size(), 2)).prop_map(|(p, n)| Body::Wkv(kernel::Wkv {
            k: p[0], k_start: n[0], v: p[1], v_start: n[1], decay: p[2], bonus: p[3], state: p[4], out: p[5],
        })),
        1 => (vec(0..params, 5), vec(size(), 3)).prop_map(|(p, n)| window_means(&p, &n)),
        2 => rows_to_rows(params),
        1 => (vec(0..params, 3), size(), vec(size(), 0..4)).prop_map(|(p, start, parts)| {
            Body::AdapterMatmul(kernel::AdapterMatmul { x: p[0], start, parts, adapter: p[1], out: p[2] })
        }),
        4 => choices(params),
        1 => (0..params).prop_map(|out| Body::TokenIds(kernel::TokenIds { out })),
        1 => (0..params).prop_map(|out| Body::GivenRows(kernel::GivenRows { out })),
        1 => (0..params, size(), 0..params)
            .prop_map(|(x, token, out)| Body::Substitute(kernel::Substitute { x, token, out })),
        1 => (vec(0..params, 3), vec(size(), 0..4), vec(size(), 0..4)).prop_map(|(p, factors, sizes)| {
            Body::EmbedHashed(kernel::EmbedHashed { table: p[0], ids: p[1], factors, sizes, out: p[2] })
        }),
        1 => (0..params, size(), 0..params).prop_map(|(x, k, out)| Body::TopK(kernel::TopK { x, k, out })),
    ]
}

/// Kernels that choose tokens, by weights, scores or bounds.
fn choices(params: usize) -> impl Strategy<Value = Body> {
    prop_oneof![
        1 => (vec(0..params, 4), size(), size()).prop_map(|(p, heads, top)| {
            Body::Select(kernel::Select { q: p[0], weights: p[1], kv: p[2], heads, top, out: p[3] })
        }),
        1 => (vec(0..params, 3), vec(size(), 3)).prop_map(|(p, n)| {
            let (heads, kv_heads, windows) = (n[0], n[1], n[2]);
            Body::SelectWindows(kernel::SelectWindows { q: p[0], kv: p[1], heads, kv_heads, windows, out: p[2] })
        }),
        1 => (vec(0..params, 3), vec(size(), 2)).prop_map(|(p, n)| {
            let (start, width) = (n[0], n[1]);
            Body::WindowBounds(kernel::WindowBounds { x: p[0], start, width, state: p[1], out: p[2] })
        }),
        1 => (vec(0..params, 5), vec(size(), 9), (attr(), attr()), any::<bool>(), select(&Criterion::ALL[..]))
            .prop_map(|(p, n, reals, together, criterion)| evicting(&p, &n, reals, together, criterion)),
    ]
}

fn rope_table(params: usize) -> impl Strategy<Value = Body> {
    let parts = (0..params, attr(), option::of(size()), option::of(size()), any::<bool>(), 0..params);
    parts.prop_map(|(inv_freq, scale, border, most, axes, out)| {
        Body::RopeTable(kernel::RopeTable { inv_freq, scale, border, most, axes, out })
    })
}

fn attention(params: usize) -> impl Strategy<Value = Body> {
    let part = || option::of(0..params);
    let first = (0..params, part(), 0..params, 0..params, size(), attr(), size());
    let more = (part(), part(), option::of([0..params, 0..params]), part());
    (first, option::of(attr()), more, (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>())).prop_map(
        |(first, softcap, (sinks, bias, relative, selected), (causal, chunked, sums, by_head))| {
            let (q, own, kv, out, heads, scale, tile_m) = first;
            Body::Attention(kernel::Attention {
                q,
                own,
                kv,
                out,
                heads,
                scale,
                softcap,
                sinks,
                bias,
                relative,
                selected,
                by_head,
                causal,
                chunked,
                sums,
                tile_m,
            })
        },
    )
}

/// Kernels from rows to rows, with numeric attributes.
fn rows_to_rows(params: usize) -> impl Strategy<Value = Body> {
    prop_oneof![
        (0..params, (size(), size(), attr()), 0..params).prop_map(|(x, (side, rounds, eps), out)| {
            Body::Sinkhorn(kernel::Sinkhorn { x, balance: Balance { side, rounds, eps }, out })
        }),
        (0..params, (size(), attr(), attr()), 0..params).prop_map(|(x, (width, most, least), out)| {
            Body::AbsMaxScale(kernel::AbsMaxScale { x, scale: RowScale { width, most, least }, out })
        }),
    ]
}

fn evicting(p: &[usize], n: &[usize], reals: (F32, F32), together: bool, criterion: Criterion) -> Body {
    let (scale, level) = reals;
    let eviction = Eviction { criterion, budget: n[3], recent: n[4], drop: n[5], window: n[6], level, together };
    let (q_start, k_start, v_start, heads, key_dim) = (n[0], n[1], n[2], n[7], n[8]);
    let (q, k, v, state, out) = (p[0], p[1], p[2], p[3], p[4]);
    Body::EvictingAttention(kernel::EvictingAttention {
        q,
        q_start,
        k,
        k_start,
        v,
        v_start,
        heads,
        key_dim,
        scale,
        eviction,
        state,
        out,
    })
}

fn window_means(p: &[usize], n: &[usize]) -> Body {
    let (k_start, v_start, width) = (n[0], n[1], n[2]);
    let (k, v, places, state, out) = (p[0], p[1], p[2], p[3], p[4]);
    Body::WindowMeans(kernel::WindowMeans { k, k_start, v, v_start, places, width, state, out })
}

fn kernel_named(name: String) -> impl Strategy<Value = Kernel> {
    (names(1..6), vec(param_kind(), 6)).prop_flat_map(move |(names, kinds)| {
        let params: Vec<kernel::Param> =
            names.into_iter().zip(kinds).map(|(name, kind)| kernel::Param { name, kind }).collect();
        let name = name.clone();
        (dim(), body(params.len())).prop_map(move |(rows, body)| Kernel {
            name: name.clone(),
            rows,
            params: params.clone(),
            body,
        })
    })
}

/// A kernel.
pub fn kernel() -> impl Strategy<Value = Kernel> {
    name().prop_flat_map(kernel_named)
}

fn weight_expr() -> impl Strategy<Value = WeightExpr> {
    let constant = attr().prop_map(|value| WeightExpr::Op(Op::Const { value }, vec![]));
    let leaf = prop_oneof![size().prop_map(WeightExpr::Weight), constant];
    leaf.prop_recursive(5, 30, 3, |inner| {
        (op_where(|head| head.packs() && head != Head::Const), vec(inner, 3), 0..4usize).prop_map(
            |(op, mut args, n)| {
                let facts = op.facts();
                args.truncate(if facts.variadic { n } else { facts.args.len() });
                WeightExpr::Op(op, args)
            },
        )
    })
}

fn packed_weight() -> impl Strategy<Value = PackedWeight> {
    let storage = prop_oneof![
        (size(), size(), format()).prop_map(|(n, k, format)| Storage::Matrix { n, k, format }),
        size().prop_map(|len| Storage::Vector { len }),
    ];
    (weight_expr(), storage).prop_map(|(expr, storage)| PackedWeight { expr, storage })
}

fn regime(entries: usize, kernels: usize) -> impl Strategy<Value = Regime> {
    let buffer = (dim(), size(), elem(), size()).prop_map(|(rows, cols, elem, slot)| Buffer { rows, cols, elem, slot });
    (0..entries, option::of(size()), vec(buffer, 1..5)).prop_flat_map(move |(entry, max_tokens, buffers)| {
        let operand = prop_oneof![
            (0..buffers.len()).prop_map(Operand::Buffer),
            size().prop_map(Operand::Weight),
            size().prop_map(Operand::State),
        ];
        let launch = (0..kernels, vec(operand, 0..5), size()).prop_map(|(kernel, operands, call)| Launch {
            kernel,
            operands,
            call,
        });
        vec(launch, 0..5).prop_map(move |launches| Regime { entry, max_tokens, buffers: buffers.clone(), launches })
    })
}

fn plan_entries() -> impl Strategy<Value = Vec<PlanEntry>> {
    let entry = |name: String| {
        let candidates = option::of((size(), size()).prop_map(|(slot, k)| Candidates { slot, k }));
        let parts = (outputs(0..64usize), candidates, taps(64), any::<bool>());
        parts.prop_map(move |(outputs, candidates, taps, only)| {
            let outputs = if only && !taps.is_empty() { vec![] } else { outputs };
            let context = candidates.map(|c: Candidates| c.k + 1);
            PlanEntry { name: name.clone(), outputs, candidates, taps, context }
        })
    };
    names(1..3).prop_flat_map(move |names| names.into_iter().map(entry).collect::<Vec<_>>())
}

/// A plan.
pub fn plan() -> impl Strategy<Value = Plan> {
    let kernels = names(1..4).prop_flat_map(|names| names.into_iter().map(kernel_named).collect::<Vec<_>>());
    let slot = (size(), size()).prop_map(|(per_token, per_row)| Slot { per_token, per_row });
    let weights = vec(packed_weight(), 0..4);
    let parts = (name(), info(), vec(state(), 0..3), kernels, weights, vec(slot, 0..4), plan_entries());
    parts.prop_flat_map(|(name, info, states, kernels, weights, slots, entries)| {
        vec(regime(entries.len(), kernels.len()), 0..3).prop_map(move |regimes| Plan {
            name: name.clone(),
            info,
            states: states.clone(),
            kernels: kernels.clone(),
            weights: weights.clone(),
            slots: slots.clone(),
            entries: entries.clone(),
            regimes,
        })
    })
}
