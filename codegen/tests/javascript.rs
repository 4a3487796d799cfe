//! What the JavaScript layer and its declarations say, on a small API.
#![allow(clippy::unwrap_used, clippy::panic)]

use polyrank_codegen::files::Files;
use polyrank_codegen::languages::javascript;

const API: &str = "\
/// A store.
interface Store {
  /// Sets `key`; raises `Broken`.
  [Waits, Throws=Broken] undefined set(DOMString key, Bytes value);
  /// Waits up to the store's timeout.
  [Waits] undefined wait(sequence<DOMString> keys);
  [Waits] undefined wait(sequence<DOMString> keys, Duration timeout);
  /// The number of keys.
  [Waits] long long num_keys();
  /// Limit of requests.
  readonly attribute Duration timeout;
};
/// A store somewhere else.
interface FarStore : Store {
  /// Connects to `host_name`.
  ///
  /// - `host_name`: where it is.
  /// - `wait_for_workers`: whether to wait for
  ///   all others.
  [Factory=connect, Waits] constructor(DOMString host_name,
                                       optional boolean wait_for_workers = true,
                                       optional Duration timeout = 300);
};
/// A group.
interface ProcessGroup {
  /// Reduces.
  ///
  /// Returns a handle.
  [Collective=allreduce, Number=0, Variant=Allreduce, Input=None, Output=One, Sizes=Equal,
   Reduces, Alias=(_reduce_all, reduce_all)]
  Work all_reduce([InOut] sequence<Tensor> tensors, optional ReduceOptions opts = {});
  [Collective=allreduce]
  Work all_reduce([InOut] Tensor tensor, [Positional] optional ReduceOp op = \"SUM\",
                  optional Duration? timeout = null);
  /// Tunes it.
  undefined tune(ReduceOptions opts);
  /// Not there yet.
  [Unbuilt] undefined later();
  /// For Python alone.
  [NotIn=javascript] undefined boxed();
};
/// Options.
dictionary ReduceOptions {
  /// How.
  ReduceOp reduce_op = \"SUM\";
  /// Kept for others.
  [AsyncOp] boolean async_op = true;
};
/// A handle.
[Own=javascript] interface Work {};
/// Functions.
namespace distributed {
  /// The rank.
  [NonMember] long get_rank([Positional] optional ProcessGroup? group = null);
  /// Makes a group.
  [Waits] ProcessGroup? new_group([Positional] optional sequence<unsigned long>? ranks = null,
                                  optional DOMString? group_name = null);
};
/// It broke.
[Error, Message=\"{why_not}\"] dictionary Broken {
  /// Why.
  required DOMString why_not;
};
";

fn generated() -> Files {
    let idl = |name: &str| std::fs::read_to_string(format!("../idl/{name}.webidl")).unwrap();
    let mut files: Vec<(String, String)> =
        ["types", "dtype", "reduce_op"].map(|name| (name.to_owned(), idl(name))).into();
    files.push(("it".to_owned(), API.to_owned()));
    let api = polyrank_codegen::read(files);
    let api = api.unwrap_or_else(|mistakes| panic!("{}", mistakes.render(false)));
    javascript::files(&api).unwrap()
}

/// The declarations, without comments.
fn declarations() -> String {
    let all = generated().remove("bindings-node/index.d.ts").unwrap();
    let is_code = |line: &&str| !line.trim_start().starts_with(['*', '/']);
    all.lines().filter(is_code).collect::<Vec<_>>().join("\n")
}

fn assert_has(text: &str, part: &str) {
    assert!(text.contains(part), "this is not there:\n{part}\nin:\n{text}");
}

#[test]
fn both_packages_have_the_same_text() {
    let files = generated();
    let of = |package: &str| -> Vec<(String, String)> {
        let own = files.iter().filter_map(|(path, text)| {
            Some((path.strip_prefix(package)?.to_owned(), text.clone()))
        });
        own.collect()
    };
    assert_eq!(of("bindings-node/"), of("bindings-wasm/"));
    assert!(files.values().all(|text| polyrank_codegen::files::says_generated(text)));
}

#[test]
fn every_overload_is_declared_and_options_follow_arguments() {
    let text = declarations();
    let list = "allReduce<T extends readonly TensorLike[]>(tensors: T, options?: ReduceOptions)";
    assert_has(&text, &format!("{list}: Work<T>;"));
    assert_has(&text, "allReduce<T extends TensorLike>(tensor: T, options?: WaitOptions & {");
    assert_has(
        &text,
        "allReduce<T extends TensorLike>(tensor: T, op: ReduceOp | undefined, options?:",
    );
    assert_has(&text, "reduceAll: ProcessGroup[\"allReduce\"];");
    assert_has(&text, "interface ReduceOptions extends WaitOptions {");
    assert_has(&text, "reduceOp?: ReduceOp | undefined;");
    assert_has(&text, "asyncOp?: boolean | undefined;");
    for absent in ["async_op", "boxed", "_reduce_all"] {
        assert!(!text.contains(absent), "{absent}");
    }
}

#[test]
fn what_waits_is_a_promise_and_can_be_ended() {
    let text = declarations();
    assert_has(&text, "set(key: string, value: BytesLike, options?: WaitOptions): Promise<void>;");
    assert_has(&text, "numKeys(options?: WaitOptions): Promise<number>;");
    assert_has(&text, "readonly timeout: number;");
    assert_has(&text, "static connect(hostName: string, options?: WaitOptions & {");
    assert_has(&text, "waitForWorkers?: boolean | undefined;");
    assert_has(&text, "export interface Store {\n  readonly timeout: number;\n");
    assert_has(&text, "export const Store: typeof OwnStore;\n");
    assert_has(&text, "export class ReduceOp {\n  private constructor();\n");
    let in_options = "wait(keys: readonly string[], options: WaitOptions & {\n    timeout: number;";
    assert_has(&text, in_options);
    assert_has(&text, "later(): void;");
}

#[test]
fn functions_take_and_give_what_stands_for_no_member() {
    let text = declarations();
    assert_has(&text, "export function getRank(group?: GroupLike | null): number;");
    let group = "newGroup(ranks: IntegerList | null | undefined, options?: WaitOptions & {";
    assert_has(&text, group);
    assert_has(&text, "Promise<GroupLike>;");
    let functions = generated().remove("bindings-node/js/generated/functions.js").unwrap();
    assert_has(&functions, "group: 0, groupName: \"group\", nonMember: -1");
    let lists = "required: 0, integers: [[0, \"ranks\"]], inOrder: true, gives: \"group\"";
    assert_has(&functions, lists);
}

#[test]
fn comments_are_tsdoc_with_names_of_javascript() {
    let text = generated().remove("bindings-node/index.d.ts").unwrap();
    assert_has(&text, "   * Sets `key`; raises {@link BrokenError}.\n   *\n");
    assert_has(&text, "   * @throws {@link BrokenError}\n");
    assert_has(&text, "   * Connects to `hostName`.\n   *\n   * @param hostName - Where it is.\n");
    let option = "     * Whether to wait for all others.\n     * @defaultValue `true`\n";
    assert_has(&text, option);
    assert_has(&text, "     * @defaultValue `300000`\n");
    assert_has(&text, "   * @returns A handle.\n");
    assert_has(&text, "   * Tunes it.\n   *\n   * @param opts - The options of this call.\n");
    assert_has(&text, "readonly whyNot: string;");
    assert_has(
        &text,
        "   * Not implemented in this version.\n   *\n   * @throws {@link UnsupportedError}",
    );
}

#[test]
fn a_call_is_described_by_what_it_needs() {
    let classes = generated().remove("bindings-wasm/js/generated/classes.js").unwrap();
    assert_has(&classes, "key: \"STORE_SET\", name: \"set\", required: 2, gives: \"nothing\"");
    assert_has(&classes, "key: \"STORE_WAIT\", name: \"wait\", required: 1, durations: [1]");
    assert_has(&classes, "required: 1, durations: [2], output: 0, outputName: \"tensors\"");
    assert_has(&classes, "calls.unsupported(\"ProcessGroup.later\")");
    assert_has(&classes, "a FarStore is made by FarStore.connect()");
    assert_has(&classes, "register(\"FarStore\", FarStore, [\"FarStore\", \"Store\"]);");
}
