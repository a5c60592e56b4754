//! The memory of one JavaScript runtime: an allocator that counts, refuses, and can give everything
//! back at once.
//!
//! QuickJS asks here for 4 KiB arenas of small objects and for every larger block. Two thresholds bound it. Past the
//! *soft* one the heap is marked over its limit and large blocks are refused. Small blocks are still given, up to the
//! *hard* one. The interrupt handler runs within a few calls and ends the activation. So it nearly always comes before
//! any small allocation fails. That keeps the engine off its rarely walked out-of-memory paths.
//!
//! All blocks are linked, so dropping the heap frees the runtime whole, without walking its objects:
//! tearing down a runtime can neither take long nor trip over a value that a failed allocation
//! leaked.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, realloc};
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::{self, NonNull};

use rquickjs::qjs;

/// How far small allocations may go past the limit before they fail too: what a few dozen calls
/// between two looks of the interrupt handler plausibly allocate.
const RESERVE_BYTES: usize = 4 << 20;

/// A block of at least this size counts as large: QuickJS handles the failure of big strings,
/// arrays and buffers well, because scripts meet it in practice.
const LARGE_BYTES: usize = 64 << 10;

/// Stands before every block. 32 bytes keep the block behind it aligned to 16.
#[repr(C, align(16))]
struct Header {
    previous: *mut Header,
    next: *mut Header,
    /// Bytes behind the header.
    size: usize,
}

const HEADER_BYTES: usize = size_of::<Header>();

/// The memory of one runtime. Its address is given to QuickJS, so it stays boxed.
pub(crate) struct Heap {
    first: Cell<*mut Header>,
    used: Cell<usize>,
    soft_limit: usize,
    is_over: Cell<bool>,
    has_refused: Cell<bool>,
}

impl Heap {
    /// An empty heap that may hold `limit_bytes`.
    pub(crate) fn new(limit_bytes: usize) -> Box<Heap> {
        Box::new(Heap {
            first: Cell::new(ptr::null_mut()),
            used: Cell::new(0),
            soft_limit: limit_bytes,
            is_over: Cell::new(false),
            has_refused: Cell::new(false),
        })
    }

    /// A runtime that allocates here; `None` when even its own structures do not fit.
    pub(crate) fn new_runtime(&self) -> Option<NonNull<qjs::JSRuntime>> {
        let functions = qjs::JSMallocFunctions {
            js_calloc: Some(heap_calloc),
            js_malloc: Some(heap_malloc),
            js_free: Some(heap_free),
            js_realloc: Some(heap_realloc),
            js_malloc_usable_size: Some(heap_usable_size),
        };
        // SAFETY: the functions below keep malloc's contract. The opaque pointer is this heap. Its owner (the isolate)
        // keeps it in its box for as long as the runtime is used.
        let runtime = unsafe { qjs::JS_NewRuntime2(&functions, ptr::from_ref(self).cast_mut().cast()) };
        NonNull::new(runtime)
    }

    /// Whether more is used than allowed, or was since [`Heap::recheck`].
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// Whether an allocation was refused since the last call.
    pub(crate) fn take_refused(&self) -> bool {
        self.has_refused.replace(false)
    }

    /// Looks again, after a garbage collection; says whether the heap is still over its limit.
    pub(crate) fn recheck(&self) -> bool {
        let is_over = self.used.get() > self.soft_limit;
        self.is_over.set(is_over);
        is_over
    }

    /// Bytes in use, rounded up to what QuickJS asked for.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used.get()
    }

    /// The number of bytes from `address` to the end of the block that holds it; 0 when no block
    /// does.
    pub(crate) fn bytes_behind(&self, address: *const u8) -> usize {
        let mut block = self.first.get();
        while !block.is_null() {
            // SAFETY: linked headers are live blocks of this heap.
            let (start, size, next) = unsafe { (block.add(1) as usize, (*block).size, (*block).next) };
            if (start..start + size).contains(&(address as usize)) {
                return start + size - address as usize;
            }
            block = next;
        }
        0
    }

    /// Whether `grow_by` more bytes may be used for a block of `size` bytes.
    fn admit(&self, size: usize, grow_by: usize) -> bool {
        let used = self.used.get().saturating_add(grow_by);
        if used <= self.soft_limit {
            return true;
        }
        self.is_over.set(true);
        let is_admitted = size < LARGE_BYTES && used <= self.soft_limit + RESERVE_BYTES;
        if !is_admitted {
            self.has_refused.set(true);
        }
        is_admitted
    }

    fn allocate(&self, size: usize, zeroed: bool) -> *mut c_void {
        let Some(layout) = layout(size) else {
            self.has_refused.set(true);
            return ptr::null_mut();
        };
        if !self.admit(size, layout.size()) {
            return ptr::null_mut();
        }
        // SAFETY: the layout has at least the header's size.
        let block = unsafe { if zeroed { alloc_zeroed(layout) } else { alloc(layout) } }.cast::<Header>();
        if block.is_null() {
            self.has_refused.set(true);
            return ptr::null_mut();
        }
        self.used.set(self.used.get() + layout.size());
        // SAFETY: the block was just allocated with room for a header and `size` bytes.
        unsafe {
            (*block).size = size;
            self.link(block);
            block.add(1).cast()
        }
    }

    /// Puts `block` first in the list.
    ///
    /// # Safety
    /// `block` is a live block that is in no list.
    unsafe fn link(&self, block: *mut Header) {
        let next = self.first.get();
        // SAFETY: `block` is live by contract, `next` because it is linked.
        unsafe {
            (*block).previous = ptr::null_mut();
            (*block).next = next;
            if !next.is_null() {
                (*next).previous = block;
            }
        }
        self.first.set(block);
    }

    /// Takes `block` out of the list.
    ///
    /// # Safety
    /// `block` is a live block of this heap's list.
    unsafe fn unlink(&self, block: *mut Header) {
        // SAFETY: a linked block's neighbours are linked, hence live.
        unsafe {
            let (previous, next) = ((*block).previous, (*block).next);
            if previous.is_null() {
                self.first.set(next);
            } else {
                (*previous).next = next;
            }
            if !next.is_null() {
                (*next).previous = previous;
            }
        }
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        let mut block = self.first.get();
        while !block.is_null() {
            // SAFETY: linked blocks are live and were allocated with the layout of their size.
            unsafe {
                let next = (*block).next;
                if let Some(layout) = layout((*block).size) {
                    dealloc(block.cast(), layout);
                }
                block = next;
            }
        }
    }
}

fn layout(size: usize) -> Option<Layout> {
    Layout::from_size_align(size.checked_add(HEADER_BYTES)?, align_of::<Header>()).ok()
}

/// The heap behind an opaque pointer.
///
/// # Safety
/// `opaque` is the pointer that [`Heap::new_runtime`] gave, and the heap is alive.
unsafe fn heap<'a>(opaque: *mut c_void) -> &'a Heap {
    // SAFETY: by contract; only shared references to a heap exist.
    unsafe { &*opaque.cast::<Heap>() }
}

unsafe extern "C" fn heap_malloc(opaque: *mut c_void, size: qjs::size_t) -> *mut c_void {
    let size = size as usize;
    // SAFETY: QuickJS passes the opaque pointer back.
    unsafe { heap(opaque) }.allocate(size, false)
}

unsafe extern "C" fn heap_calloc(opaque: *mut c_void, count: qjs::size_t, size: qjs::size_t) -> *mut c_void {
    let Some(bytes) = (count as usize).checked_mul(size as usize) else {
        return ptr::null_mut();
    };
    // SAFETY: as in `heap_malloc`.
    unsafe { heap(opaque) }.allocate(bytes, true)
}

unsafe extern "C" fn heap_free(opaque: *mut c_void, pointer: *mut c_void) {
    if pointer.is_null() {
        return;
    }
    // SAFETY: QuickJS frees only blocks of this heap, so a header stands before `pointer`, and the
    // layout is the one it was allocated with.
    unsafe {
        let heap = heap(opaque);
        let block = pointer.cast::<Header>().sub(1);
        heap.unlink(block);
        if let Some(layout) = layout((*block).size) {
            heap.used.set(heap.used.get().saturating_sub(layout.size()));
            dealloc(block.cast(), layout);
        }
    }
}

unsafe extern "C" fn heap_realloc(opaque: *mut c_void, pointer: *mut c_void, size: qjs::size_t) -> *mut c_void {
    let size = size as usize;
    // SAFETY: as in `heap_malloc` and `heap_free`; on failure the old block stays linked and valid.
    unsafe {
        let heap = heap(opaque);
        if pointer.is_null() {
            return heap.allocate(size, false);
        }
        let block = pointer.cast::<Header>().sub(1);
        let (Some(old), Some(new)) = (layout((*block).size), layout(size)) else {
            return ptr::null_mut();
        };
        if new.size() > old.size() && !heap.admit(size, new.size() - old.size()) {
            return ptr::null_mut();
        }
        heap.unlink(block);
        let moved = realloc(block.cast(), old, new.size()).cast::<Header>();
        if moved.is_null() {
            heap.link(block);
            heap.has_refused.set(true);
            return ptr::null_mut();
        }
        (*moved).size = size;
        heap.link(moved);
        heap.used.set(heap.used.get().saturating_sub(old.size()) + new.size());
        moved.add(1).cast()
    }
}

unsafe extern "C" fn heap_usable_size(pointer: *const c_void) -> qjs::size_t {
    if pointer.is_null() {
        return 0;
    }
    // SAFETY: QuickJS asks only about blocks of its heap.
    unsafe { (*pointer.cast::<Header>().sub(1)).size as qjs::size_t }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_refuses_and_gives_back() {
        let heap = Heap::new(1 << 20);
        let opaque: *mut c_void = ptr::from_ref(&*heap).cast_mut().cast();
        // SAFETY: the pointers come from this heap.
        unsafe {
            let small = heap_malloc(opaque, 100);
            let block = heap_calloc(opaque, 10, 1000);
            assert_eq!(heap_usable_size(block), 10_000);
            assert_eq!(heap.used_bytes(), 10_100 + 2 * HEADER_BYTES);
            assert_eq!(heap.bytes_behind(block.cast::<u8>().add(9_000)), 1_000);
            assert!(heap_malloc(opaque, 2 << 20).is_null());
            assert!(heap.take_refused() && heap.is_over() && !heap.recheck());
            let grown = heap_realloc(opaque, block, 20_000);
            assert_eq!(heap_usable_size(grown), 20_000);
            assert!(heap_realloc(opaque, grown, 2 << 20).is_null());
            heap_free(opaque, grown);
            heap_free(opaque, small);
            assert_eq!(heap.used_bytes(), 0);
            // Left to the drop.
            assert!(!heap_malloc(opaque, 64).is_null());
        }
    }

    #[test]
    fn small_blocks_go_past_the_limit_but_not_far() {
        let heap = Heap::new(1 << 20);
        let opaque: *mut c_void = ptr::from_ref(&*heap).cast_mut().cast();
        let mut given = 0;
        // SAFETY: the pointers come from this heap.
        while !unsafe { heap_malloc(opaque, 4096) }.is_null() {
            given += 4096;
            assert!(given < 2 * RESERVE_BYTES, "no end");
        }
        assert!(given > 1 << 20 && heap.is_over() && heap.take_refused());
    }
}
