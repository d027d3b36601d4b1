//! The converter's changes to tensors that are more than renamed: see
//! `tests/goldens/gguf_forms.py`.

use serde_json::Value;

/// A tensor of a file: name, dimensions, numbers.
pub(super) type Made = (String, Vec<usize>, Vec<f32>);

fn sizes(v: &Value) -> Vec<usize> {
    v.as_array().into_iter().flatten().map(|n| n.as_u64().unwrap() as usize).collect()
}

/// Each matrix of `n` rows of `k` numbers, transposed.
fn transposed(values: &[f32], [n, k]: [usize; 2]) -> Vec<f32> {
    let one = |m: &[f32]| -> Vec<f32> { (0..k).flat_map(|j| (0..n).map(move |i| m[i * k + j])).collect() };
    values.chunks(n * k).flat_map(one).collect()
}

/// The order in which rows lie: those before, then all first parts of the groups, all second ones...
fn part_by_part(turns: &Value) -> Vec<usize> {
    let (before, groups) = (turns[0].as_u64().unwrap() as usize, turns[1].as_u64().unwrap() as usize);
    let parts = sizes(&turns[2]);
    let width: usize = parts.iter().sum();
    let mut out: Vec<usize> = (0..before).collect();
    let mut start = 0;
    for part in parts {
        out.extend((0..groups).flat_map(|g| (0..part).map(move |i| before + g * width + start + i)));
        start += part;
    }
    out
}

/// Rows of two projections from halves of heads to neighbours, then the rest.
fn neighbours(values: &[f32], width: usize, [rows, dim]: [usize; 2]) -> Vec<f32> {
    let place = |row: usize| match row {
        row if row >= rows => row,
        row => row / dim * dim + row % dim / 2 + if row % 2 == 1 { dim / 2 } else { 0 },
    };
    (0..values.len() / width).flat_map(|row| values[place(row) * width..][..width].to_vec()).collect()
}

/// The tensors that are made of one; `gain`: norms are.
pub(super) fn made(form: &Value, layer: &str, mut values: Vec<f32>) -> Vec<Made> {
    let width = form["width"].as_u64().unwrap() as usize;
    let pair = |v: &Value| <[usize; 2]>::try_from(sizes(v)).ok();
    if let Some(shape) = pair(&form["transposed"]) {
        values = transposed(&values, shape);
    }
    if form["turns"].is_array() {
        let rows = part_by_part(&form["turns"]);
        values = rows.iter().flat_map(|row| values[row * width..][..width].to_vec()).collect();
    }
    if let Some(halves) = pair(&form["halves"]) {
        values = neighbours(&values, width, halves);
    }
    if let Some([rotated, dim]) = pair(&form["pairs"]) {
        let place = |row: usize| match row % dim {
            i if i >= rotated => row,
            i => row - i + if i < rotated / 2 { 2 * i } else { 2 * (i - rotated / 2) + 1 },
        };
        values = (0..values.len() / width).flat_map(|row| values[place(row) * width..][..width].to_vec()).collect();
    }
    if form["columns"].is_array() {
        let columns = part_by_part(&form["columns"]);
        values = values.chunks(width).flat_map(|row| columns.iter().map(|j| row[*j]).collect::<Vec<_>>()).collect();
    }
    match (form["value"].as_str(), form["value"].as_f64()) {
        (Some("gain"), _) => values.iter_mut().for_each(|v| *v += 1.0),
        (Some("slope"), _) => values.iter_mut().for_each(|v| *v = v.exp()),
        (Some("rate"), _) => values.iter_mut().for_each(|v| *v = -v.exp()),
        (_, Some(x)) => values.iter_mut().for_each(|v| *v *= x as f32),
        _ => {}
    }
    for (row, x) in values.chunks_mut(width).zip(form["values"].as_array().into_iter().flatten()) {
        row.iter_mut().for_each(|v| *v *= x.as_f64().unwrap() as f32);
    }
    let mut out = vec![];
    let mut rest = &values[..];
    for to in form["to"].as_array().unwrap() {
        let shape = sizes(&to[1]);
        let (own, others) = rest.split_at(shape.iter().product());
        rest = others;
        let own = pair(&to[2]).map_or_else(|| own.to_vec(), |shape| transposed(own, shape));
        let name = to[0].as_str().unwrap().replace("{}", layer);
        out.extend((!name.is_empty()).then_some((name, shape, own)));
    }
    out
}
