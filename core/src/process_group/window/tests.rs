//! What ranks give a window that they make together, and what an operation is called that fails.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use crate::blocking::block_on;
use crate::generated::dtype::DType;
use crate::store::{HashStore, Store};
use crate::tensor::{Region, Tensor};
use crate::{Error, GroupOptions, ProcessGroup};

/// What three ranks of a group end with, each a thread.
fn ended<T: Send>(run: impl Fn(&ProcessGroup) -> Result<T, Error> + Sync) -> Vec<Result<T, Error>> {
    let store: Arc<dyn Store> = Arc::new(HashStore::new());
    let run = &run;
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..3)
            .map(|rank| {
                let store = store.clone();
                scope.spawn(move || {
                    let options = GroupOptions::default().timeout(Duration::from_secs(60));
                    let group = ProcessGroup::new(store, rank, 3, "g", options).unwrap();
                    run(&group)
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

fn tensor(elements: usize, stride: isize) -> Tensor {
    let spanned = (elements - 1) * stride as usize + 1;
    let memory = Region::zeroed(4 * spanned);
    Tensor::strided(memory, DType::F32, vec![elements], vec![stride], 0)
}

#[test]
fn a_rank_that_gives_a_window_no_tensor_is_named_by_all() {
    let made = ended(|group| {
        let given = (group.rank() != 1).then(|| tensor(4, 1));
        block_on(group.new_window_given(Ok(given))).map(drop)
    });
    for made in made {
        let text = made.unwrap_err().to_string();
        assert!(text.contains("ranks [0, 2] gave a tensor, ranks [1] none"), "{text}");
    }
}

#[test]
fn a_tensor_that_one_rank_cannot_register_is_told_to_all() {
    let made = ended(|group| {
        let given = tensor(4, if group.rank() == 1 { 2 } else { 1 });
        block_on(group.new_window_given(Ok(Some(given)))).map(drop)
    });
    for (rank, made) in made.into_iter().enumerate() {
        let text = made.unwrap_err().to_string();
        let why = match rank {
            1 => "a tensor must be contiguous",
            _ => "ranks [1] gave a tensor that cannot be registered",
        };
        assert!(text.contains(why), "{text}");
    }
}

#[test]
fn a_window_has_the_tensors_that_all_ranks_give() {
    for made in ended(|group| block_on(group.new_window_given(Ok(Some(tensor(4, 1))))).map(drop)) {
        made.unwrap();
    }
    for made in ended(|group| block_on(group.new_window_given(Ok(None))).map(drop)) {
        made.unwrap();
    }
}
