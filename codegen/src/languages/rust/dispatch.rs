//! The view of the dispatcher: what each call does that is not an operation on tensors.

use askama::Template;

use super::calls::{member_constant, method_constant, platforms_of};
use super::types::type_of;
use crate::languages::plain::{given, is_direct, is_plain, taken};
use crate::languages::roads::{is_object, is_run_by_core};
use crate::languages::stamp;
use crate::model::names::snake_case;
use crate::model::{Api, Attribute, Interface, Method, Order, Overload, Type};

#[derive(Template)]
#[template(path = "rust/dispatch.rs.jinja", escape = "none")]
pub(super) struct Dispatch {
    stamp: String,
    /// Ordered by key.
    entries: Vec<Entry>,
    attributes: Vec<Table>,
    calls: Vec<Call>,
}

/// One call that can be found by name.
struct Entry {
    key: String,
    /// `&calls::STORE_GET`, or a table that is in the dispatcher itself.
    method: String,
    /// A variant of the core's `Order`.
    order: String,
    /// Whether it may wait for other ranks or for a store.
    waits: bool,
    run: String,
    /// Where it is compiled.
    platforms: &'static str,
}

/// The table of an attribute: it is called without arguments.
struct Table {
    key: String,
    interface: String,
    name: String,
    /// The type of what it can be set to, by the table with `_SET` in its name; empty if it cannot.
    set: String,
    /// Where it is compiled.
    platforms: &'static str,
}

/// A call that the generator writes.
struct Call {
    /// The name of its function: `store_get`.
    name: String,
    path: String,
    /// `let key: String = call.take(0)?;` lines.
    takes: Vec<String>,
    /// `call.this_store()?`.
    this: String,
    /// The core's method and its arguments.
    direct: String,
    /// Whether its body is asynchronous.
    waits: bool,
}

pub(super) fn dispatch(api: &Api) -> Dispatch {
    let mut view = Dispatch {
        stamp: stamp("idl/*.webidl"),
        entries: Vec::new(),
        attributes: Vec::new(),
        calls: Vec::new(),
    };
    for interface in &api.interfaces {
        let answers = is_object(api, interface);
        let (entries, tables) = (view.entries.len(), view.attributes.len());
        for method in interface.constructor.iter().chain(&interface.methods) {
            view.add_method(api, method, answers, !interface.is_derived());
        }
        let attributes = interface.attributes.iter();
        for attribute in attributes.filter(|it| answers && !it.common.unbuilt) {
            let direct = !interface.is_derived();
            view.add_attribute(api, &interface.name, attribute, direct);
        }
        let platforms = platforms_of(&interface.common);
        view.entries[entries..].iter_mut().for_each(|it| it.platforms = platforms);
        view.attributes[tables..].iter_mut().for_each(|it| it.platforms = platforms);
    }
    for namespace in &api.namespaces {
        for function in &namespace.functions {
            view.add_method(api, function, true, false);
        }
        for attribute in &namespace.attributes {
            view.add_attribute(api, &namespace.name, attribute, false);
        }
    }
    view.entries.sort_by(|a, b| a.key.cmp(&b.key));
    view
}

impl Interface {
    fn is_derived(&self) -> bool {
        self.inherits.is_some()
    }
}

impl Dispatch {
    /// `answers`: whether its object is one that calls are made on; `direct`: whether the core has
    /// a type of its own for it.
    fn add_method(&mut self, api: &Api, method: &Method, answers: bool, direct: bool) {
        let key = method_constant(method);
        let run = if method.common.unbuilt {
            "Some(Run::Now(unbuilt))".to_owned()
        } else if !answers || !is_run_by_core(api, method) {
            "None".to_owned()
        } else if direct && method.name != "new" && !method.common.handwritten && is_direct(method)
        {
            let core = method.common.rust.as_deref().unwrap_or(&method.name);
            let parameters = method.overloads.first().map_or(&[][..], |first| &first.parameters);
            let takes = parameters.iter().enumerate().map(|(position, parameter)| {
                let (name, ty) = (&parameter.name, taken(&parameter.ty));
                format!("let {name}: {ty} = call.take({position})?;")
            });
            let arguments: Vec<String> =
                parameters.iter().map(|it| given(&it.name, &it.ty)).collect();
            let direct = direct_call(method, core, &arguments.join(", "));
            let waits = method.common.waits;
            self.add_call((&method.owner, &method.name), takes.collect(), direct, waits)
        } else {
            let body = format!("implementations::{}::{}", snake_case(&method.owner), method.name);
            run_of(&body, is_asynchronous(method))
        };
        let order = format!("{:?}", method.order());
        let waits = method.common.waits;
        let method = format!("&calls::{key}");
        self.entries.push(Entry { method, key, order, waits, run, platforms: "" });
    }

    fn add_attribute(&mut self, api: &Api, owner: &str, attribute: &Attribute, direct: bool) {
        let key = member_constant(owner, &attribute.name);
        let is_direct = direct && !attribute.common.handwritten && is_plain(&attribute.ty);
        let core = attribute.common.rust.as_deref().unwrap_or(&attribute.name);
        let run = if is_direct {
            self.add_call((owner, &attribute.name), Vec::new(), format!("{core}()"), false)
        } else {
            let body = format!("implementations::{}::{}", snake_case(owner), attribute.name);
            run_of(&body, false)
        };
        let (interface, name) = (owner.to_owned(), attribute.name.clone());
        let set = match attribute.readonly {
            true => String::new(),
            false => self.add_setter(api, &key, attribute, is_direct.then_some((owner, core))),
        };
        self.attributes.push(Table { key: key.clone(), interface, name, set, platforms: "" });
        self.entries.push(Entry {
            method: format!("&{key}"),
            key,
            order: format!("{:?}", Order::Free),
            waits: false,
            run,
            platforms: "",
        });
    }

    /// Adds the call that sets an attribute, of this owner and name in the core if that is all; the
    /// type of its argument.
    fn add_setter(
        &mut self,
        api: &Api,
        key: &str,
        attribute: &Attribute,
        direct: Option<(&str, &str)>,
    ) -> String {
        let run = match direct {
            Some((owner, core)) => {
                let take = format!("let value: {} = call.take(0)?;", taken(&attribute.ty));
                let value = given("value", &attribute.ty);
                let name = format!("set_{}", attribute.name);
                self.add_call((owner, &name), vec![take], format!("set_{core}({value})"), false)
            }
            None => "None".to_owned(),
        };
        self.entries.push(Entry {
            method: format!("&{key}_SET"),
            key: format!("{key}_SET"),
            order: format!("{:?}", Order::Free),
            waits: false,
            run,
            platforms: "",
        });
        type_of(api, &attribute.ty)
    }

    /// Adds a call that is written here; what runs it.
    fn add_call(
        &mut self,
        (owner, name): (&str, &str),
        takes: Vec<String>,
        direct: String,
        waits: bool,
    ) -> String {
        // Both of the core's types are what their objects hold.
        let this = match owner {
            "Store" => "call.this_store()?.get()",
            _ => "call.this_group()?",
        };
        let function = format!("{}_{name}", snake_case(owner));
        let run = run_of(&function, waits);
        let path = format!("{owner}.{name}");
        let this = this.to_owned();
        self.calls.push(Call { name: function, path, takes, this, direct, waits });
        run
    }
}

/// Whether the body of a call is asynchronous, also where its caller gets a handle to wait by.
fn is_asynchronous(method: &Method) -> bool {
    let is_work = |ty: &Type| matches!(ty, Type::Interface(name) if name == "Work");
    let gives_work = |overload: &Overload| is_work(overload.returns.non_null());
    method.common.waits || method.overloads.iter().any(gives_work)
}

/// What runs a call whose body is the function `body`.
fn run_of(body: &str, waits: bool) -> String {
    match waits {
        true => format!("Some(Run::Later(|call| Box::pin({body}(call))))"),
        // One future for all of them: a page need not load one of each.
        false => format!("Some(Run::Now({body}))"),
    }
}

/// The core's method, in the form that does not block where nothing can.
fn direct_call(method: &Method, core: &str, arguments: &str) -> String {
    match method.common.waits {
        true => format!("{core}_async({arguments}).await"),
        false => format!("{core}({arguments})"),
    }
}
