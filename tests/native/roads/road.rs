//! The driver's functions as the crate libloading finds them: dlopen and dlsym.
use std::ffi::{c_char, c_int, c_void};

extern "C" {
    fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
}

type Address = u64;

fn main() {
    unsafe {
        let driver = dlopen(c"libcuda.so.1".as_ptr(), 2);
        let find = |name: &std::ffi::CStr| dlsym(driver, name.as_ptr());
        let init: extern "C" fn(u32) -> c_int = std::mem::transmute(find(c"cuInit"));
        let make: extern "C" fn(*mut *mut c_void, u32, c_int) -> c_int =
            std::mem::transmute(find(c"cuCtxCreate_v2"));
        let info: extern "C" fn(*mut usize, *mut usize) -> c_int =
            std::mem::transmute(find(c"cuMemGetInfo_v2"));
        let alloc: extern "C" fn(*mut Address, usize) -> c_int =
            std::mem::transmute(find(c"cuMemAlloc_v2"));
        let mut context = std::ptr::null_mut();
        let (mut free, mut total, mut address) = (0, 0, 0);
        init(0);
        make(&mut context, 0, 0);
        info(&mut free, &mut total);
        let too_much = alloc(&mut address, 2 << 30);
        let little = alloc(&mut address, 16 << 20);
        println!("total={} alloc={} little={}", total >> 20, too_much, little);
    }
}
