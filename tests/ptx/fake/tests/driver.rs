//! The driver as a program sees it.

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use llmcc_fake_cuda::*;

const PTX: &CStr = c".version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 16 .b8 dynamic[];
.visible .entry scale(.param .u64 x, .param .f32 by)
.maxntid 64
{
    .reg .b32 %r<5>; .reg .b64 %x<4>;
    ld.param.u64 %x0, [x]; ld.param.f32 %r1, [by];
    mov.u32 %r0, %tid.x; mad.wide.u32 %x0, %r0, 4, %x0;
    mov.b64 %x1, dynamic; mad.wide.u32 %x1, %r0, 1024, %x1;
    ld.global.f32 %r2, [%x0];
    st.shared.f32 [%x1], %r2;
    ld.shared.f32 %r3, [%x1];
    mul.f32 %r3, %r3, %r1;
    st.global.f32 [%x0], %r3;
    ret;
}
";

type Handle = *mut c_void;

/// The driver is one for the process, and a fault is felt by all.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A context, a stream and the kernel.
struct Session {
    stream: Handle,
    function: Handle,
}

fn ok(code: Code) {
    assert_eq!(code, Code::SUCCESS);
}

impl Session {
    fn new() -> Session {
        let (mut c, mut device, mut context, mut stream, mut module, mut function) =
            (0, 0, null_mut(), null_mut(), null_mut(), null_mut());
        // SAFETY: all results are writable, the text ends in NUL.
        unsafe {
            ok(cuInit(0));
            ok(cuDeviceGetCount(&mut c));
            ok(cuDeviceGet(&mut device, 0));
            assert_eq!(cuDeviceGet(&mut device, 1), Code::INVALID_DEVICE);
            ok(cuDevicePrimaryCtxRetain(&mut context, device));
            assert_eq!(cuStreamCreate(&mut stream, 0), Code::INVALID_CONTEXT, "nothing is current yet");
            ok(cuCtxPushCurrent_v2(context));
            ok(cuStreamCreate(&mut stream, 1));
            ok(cuModuleLoadDataEx(&mut module, PTX.as_ptr().cast(), 0, null_mut(), null_mut()));
            ok(cuModuleGetFunction(&mut function, module, c"scale".as_ptr()));
            assert_eq!(cuModuleGetFunction(&mut function, module, c"other".as_ptr()), Code::NOT_FOUND);
        }
        Session { stream, function }
    }

    fn launch(&self, threads: u32, shared: u32, address: u64, by: f32) -> Code {
        let (mut a, mut b) = (address, by);
        let mut params: [*mut c_void; 2] = [(&raw mut a).cast(), (&raw mut b).cast()];
        // SAFETY: two parameters of the kernel's types.
        unsafe {
            cuLaunchKernel(self.function, 1, 1, 1, threads, 1, 1, shared, self.stream, params.as_mut_ptr(), null_mut())
        }
    }

    fn upload(&self, data: &[f32]) -> u64 {
        let mut address = 0;
        // SAFETY: the data lives until the copy is done, which is at once.
        unsafe {
            ok(cuMemAlloc_v2(&mut address, 4 * data.len()));
            ok(cuMemcpyHtoDAsync_v2(address, data.as_ptr().cast(), 4 * data.len(), self.stream));
        }
        address
    }

    fn download(&self, address: u64, n: usize) -> Vec<f32> {
        let mut out = vec![0f32; n];
        // SAFETY: as above.
        unsafe { ok(cuMemcpyDtoHAsync_v2(out.as_mut_ptr().cast(), address, 4 * n, self.stream)) };
        out
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut c = null_mut();
        // SAFETY: pushed and retained in `new`.
        unsafe {
            ok(cuCtxPopCurrent_v2(&mut c));
            ok(cuDevicePrimaryCtxRelease_v2(0));
        }
    }
}

#[test]
fn launches_and_graphs_run() {
    let _alone = alone();
    let s = Session::new();
    let data: Vec<f32> = (0..32).map(|i| i as f32).collect();
    let address = s.upload(&data);
    ok(s.launch(32, 32 * 1024, address, 2.0));
    assert_eq!(s.download(address, 32), data.iter().map(|x| 2.0 * x).collect::<Vec<_>>());
    let (mut graph, mut exec, mut twin) = (null_mut(), null_mut(), 0);
    // SAFETY: all results are writable.
    unsafe {
        ok(cuMemAlloc_v2(&mut twin, 128));
        ok(cuStreamBeginCapture_v2(s.stream, 1));
        ok(s.launch(32, 32 * 1024, address, 0.5));
        ok(cuMemcpyDtoDAsync_v2(twin, address, 128, s.stream));
        assert_eq!(cuStreamSynchronize(s.stream), Code::CAPTURE_UNSUPPORTED);
        ok(cuStreamEndCapture(s.stream, &mut graph));
        ok(cuGraphInstantiateWithFlags(&mut exec, graph, 0));
        ok(cuGraphDestroy(graph));
        assert_eq!(s.download(address, 32)[3], 6.0, "a capture runs nothing");
        ok(cuGraphLaunch(exec, s.stream));
        ok(cuGraphLaunch(exec, s.stream));
        ok(cuStreamSynchronize(s.stream));
        ok(cuGraphExecDestroy(exec));
    }
    assert_eq!(s.download(twin, 32), data.iter().map(|x| 0.5 * x).collect::<Vec<_>>());
    // SAFETY: allocated above.
    unsafe { ok(cuMemFree_v2(twin)) };
}

#[test]
fn what_a_driver_refuses_is_refused() {
    let _alone = alone();
    let s = Session::new();
    let address = s.upload(&[1.0; 64]);
    assert_eq!(s.launch(65, 32 * 1024, address, 1.0), Code::INVALID_VALUE, "more threads than .maxntid");
    assert_eq!(s.launch(64, 64 * 1024, address, 1.0), Code::INVALID_VALUE, "more than 48 KiB were not asked for");
    // SAFETY: live handles; results are writable.
    unsafe {
        ok(cuFuncSetAttribute(s.function, 8, 64 * 1024));
        ok(s.launch(64, 64 * 1024, address, 1.0));
        let (mut free, mut total, mut p, mut m) = (0, 0, 0, null_mut());
        ok(cuMemGetInfo_v2(&mut free, &mut total));
        assert_eq!(free, total - 256);
        assert_eq!(cuMemAlloc_v2(&mut p, free + 1), Code::OUT_OF_MEMORY);
        let mut foreign = [0u8; 120];
        foreign[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        assert_eq!(
            cuModuleLoadDataEx(&mut m, foreign.as_ptr().cast(), 0, null_mut(), null_mut()),
            Code::NO_BINARY_FOR_GPU
        );
        // A cubin for another GPU; and one for this.
        let text = PTX.to_str().expect("text");
        assert_eq!(
            cuModuleLoadDataEx(&mut m, cubin(80, text).as_ptr().cast(), 0, null_mut(), null_mut()),
            Code::NO_BINARY_FOR_GPU
        );
        ok(cuModuleLoadDataEx(&mut m, cubin(90, text).as_ptr().cast(), 0, null_mut(), null_mut()));
        let (mut f, mut blocks) = (null_mut(), 0);
        ok(cuModuleGetFunction(&mut f, m, c"scale".as_ptr()));
        ok(cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, f, 64, 30 * 1024));
        assert_eq!(blocks, 7);
        ok(cuOccupancyMaxActiveBlocksPerMultiprocessor(&mut blocks, f, 512, 0));
        assert_eq!(blocks, 4);
        let mut log = [1u8; 200];
        let (mut options, mut values) =
            ([5, 6], [log.as_mut_ptr().cast::<c_void>(), std::ptr::without_provenance_mut(200)]);
        let bad = c".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() {\n frob;\n}";
        assert_eq!(
            cuModuleLoadDataEx(&mut m, bad.as_ptr().cast(), 2, options.as_mut_ptr(), values.as_mut_ptr()),
            Code::INVALID_PTX
        );
        let log = CStr::from_bytes_until_nul(&log).expect("NUL").to_string_lossy().into_owned();
        assert!(log.starts_with("PTX line 5:") && log.contains("frob"), "{log}");
        let other = c".version 8.0\n.target sm_100a\n.address_size 64\n";
        assert_eq!(
            cuModuleLoadDataEx(&mut m, other.as_ptr().cast(), 0, null_mut(), null_mut()),
            Code::NO_BINARY_FOR_GPU
        );
        let mut name = null();
        ok(cuGetErrorName(Code::OUT_OF_MEMORY, &mut name));
        assert_eq!(CStr::from_ptr(name), c"CUDA_ERROR_OUT_OF_MEMORY");
    }
}

#[test]
fn a_fault_ends_the_context() {
    let _alone = alone();
    {
        let s = Session::new();
        let address = s.upload(&[1.0; 8]);
        assert_eq!(
            s.launch(9, 32 * 1024, address, 1.0),
            Code::ILLEGAL_ADDRESS,
            "the ninth thread is outside of the buffer"
        );
        assert_eq!(s.launch(8, 32 * 1024, address, 1.0), Code::ILLEGAL_ADDRESS);
        // SAFETY: a live stream.
        assert_eq!(unsafe { cuStreamSynchronize(s.stream) }, Code::ILLEGAL_ADDRESS);
    }
    // A new context is whole again, and its memory is new.
    let s = Session::new();
    let address = s.upload(&[1.0; 8]);
    ok(s.launch(8, 32 * 1024, address, 3.0));
    assert_eq!(s.download(address, 8), [3.0; 8]);
}

/// A thread that allocates calls off captures in the global mode, unless it is in the relaxed mode
/// itself; those in the thread's own mode it leaves alone.
#[test]
fn captures_in_the_global_mode_bind_other_threads() {
    let _alone = alone();
    let s = Session::new();
    let mut graph = null_mut();
    for (mode, relaxed, ended) in
        [(0, false, Code::CAPTURE_INVALIDATED), (0, true, Code::SUCCESS), (1, false, Code::SUCCESS)]
    {
        // SAFETY: results are writable, the stream is ours.
        unsafe {
            ok(cuStreamBeginCapture_v2(s.stream, mode));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let (mut context, mut address, mut mode) = (null_mut(), 0, 2);
                    ok(cuDevicePrimaryCtxRetain(&mut context, 0));
                    ok(cuCtxPushCurrent_v2(context));
                    if relaxed {
                        ok(cuThreadExchangeStreamCaptureMode(&mut mode));
                        assert_eq!(mode, 0);
                    }
                    let code = cuMemAlloc_v2(&mut address, 16);
                    assert_eq!(code == Code::SUCCESS, ended == Code::SUCCESS);
                    if code == Code::SUCCESS {
                        ok(cuMemFree_v2(address));
                    }
                    ok(cuCtxPopCurrent_v2(&mut context));
                    ok(cuDevicePrimaryCtxRelease_v2(0));
                });
            });
            assert_eq!(cuStreamEndCapture(s.stream, &mut graph), ended);
        }
    }
}
