//! A Rust rank that makes meshes with ranks of any language; arithmetic says what is right.
//!
//! `tests/device_mesh/run.py` is the same in Python, `run.mjs` in JavaScript.

use std::error::Error;
use std::time::Duration;

use polyrank::DeviceMesh;
use polyrank::device_mesh::{MeshOptions, init_device_mesh};
use polyrank::distributed::{InitOptions, destroy_process_group, init_process_group};

const NAMES: [&str; 3] = ["dp", "pp", "tp"];

fn main() -> Result<(), Box<dyn Error>> {
    let world = init_process_group(InitOptions::default().timeout(Duration::from_secs(60)))?;
    let (rank, size) = (world.rank(), world.size());
    let mut shapes = vec![vec![size], vec![1, size], vec![size, 1, 1]];
    if size.is_multiple_of(2) {
        shapes.extend([vec![2, size / 2], vec![size / 2, 1, 2]]);
    }
    for shape in shapes {
        let names = &NAMES[..shape.len()];
        let mesh = init_device_mesh("cpu", &shape, options(names))?;
        check(&mesh, rank, &shape, &(0..size).collect::<Vec<_>>())?;
        if let [rows, columns] = shape[..] {
            let row = mesh.slice(["pp"])?;
            let first = rank / columns * columns;
            check(&row, rank, &[columns], &(first..first + columns).collect::<Vec<_>>())?;
            let whole = mesh.flatten(Some("all"))?;
            check(&whole, rank, &[rows * columns], &(0..size).collect::<Vec<_>>())?;
            assert_eq!(mesh.slice(["all"])?, whole);
        }
        let again =
            DeviceMesh::from_groups(mesh.groups()?, "cpu", &shape, mesh.ranks(), options(names))?;
        assert_eq!(again, mesh);
    }
    let some: Vec<u32> = (0..size.max(2) - 1).rev().collect();
    for shape in [vec![some.len() as u32], vec![1, some.len() as u32]] {
        let mesh = DeviceMesh::new("cpu", &shape, &some, MeshOptions::default())?;
        check(&mesh, rank, &shape, &some)?;
    }
    if size > 1 {
        let name = if rank == 0 { "x" } else { "y" };
        let Err(error) = init_device_mesh("cpu", &[size], options(&[name])) else {
            return Err("meshes that differ were made".into());
        };
        let error = error.to_string();
        let ranks = (0..size).collect::<Vec<_>>();
        let told = format!("rank 0 gave DeviceMesh('cpu', {ranks:?}, mesh_dim_names=['x'])");
        assert!(error.contains(&told) && error.contains("mesh_dim_names=['y']"), "{error}");
    }
    destroy_process_group(None)?;
    println!("Rust rank {rank} of {size}: meshes passed");
    Ok(())
}

fn options(names: &[&str]) -> MeshOptions {
    MeshOptions::default().names(names.iter().copied())
}

/// Whether the mesh is what its ranks say, and its groups reduce along its dimensions.
fn check(mesh: &DeviceMesh, rank: u32, shape: &[u32], ranks: &[u32]) -> Result<(), Box<dyn Error>> {
    assert_eq!((mesh.shape(), mesh.ranks()), (shape, ranks));
    let Some(place) = ranks.iter().position(|&other| other == rank) else {
        assert_eq!(mesh.coordinate(), None);
        assert!(mesh.groups().is_err());
        return Ok(());
    };
    for (dim, &length) in shape.iter().enumerate() {
        let step: u32 = shape[dim + 1..].iter().product();
        let index = place as u32 / step % length;
        let first = place as u32 - index * step;
        let line: Vec<u32> = (0..length).map(|at| ranks[(first + at * step) as usize]).collect();
        let group = mesh.group(dim as i32)?;
        assert_eq!(group.ranks(), line);
        assert_eq!((mesh.local_rank(dim as i32)?, group.rank()), (index, index));
        let mut total = [i64::from(rank) + 1];
        group.allreduce(&mut total, ())?;
        assert_eq!(total[0], line.iter().map(|&rank| i64::from(rank) + 1).sum::<i64>());
    }
    Ok(())
}
