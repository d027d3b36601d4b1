//! The choice of windows of a cache.

use llmcc_abi::{PAGE_TOKENS, SelectWindowsArgs};

use crate::element::{cached, scale};
use crate::windows::select_windows_by;

/// See [`SelectWindowsArgs`].
pub(crate) unsafe extern "C" fn select_windows(a: *const SelectWindowsArgs) {
    let a = unsafe { &*a };
    let (d, heads, group) = (a.d as usize, a.kv_heads as usize, a.group as usize);
    let columns = 2 * heads * d;
    let turn = |first: usize, to: *mut f32| unsafe {
        let page = a.pool.add(a.pages.add(first / PAGE_TOKENS).read() as usize * a.page_bytes as usize);
        for line in 0..PAGE_TOKENS {
            let step = scale(page.wrapping_add(a.v_scales as usize), line, a.dtype as u32);
            for i in 0..columns {
                let x = cached(page.add(a.v as usize), (false, columns, line, i), a.dtype as u32) * step;
                to.add(i * PAGE_TOKENS + line).write(x);
            }
        }
    };
    let score = |head: usize, page: *const f32, to: &mut [f32; PAGE_TOKENS]| unsafe {
        for (line, to) in to.iter_mut().enumerate() {
            let term = |sum, i: usize| {
                let q = a.q.add(head * group * d + i).read();
                let half = if q < 0.0 { 0 } else { heads * d };
                libm::fmaf(q, page.add((half + head * d + i % d) * PAGE_TOKENS + line).read(), sum)
            };
            *to = (0..group * d).fold(0.0, term);
        }
    };
    unsafe { select_windows_by(a, turn, score) }
}
