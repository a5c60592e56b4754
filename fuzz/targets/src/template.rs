//! Templates of the load generator. A text is refused with a place inside it, or fills in the same way for the same
//! seed. The same text is also read as a request: target, header, body.

use millrace_loadgen::{Compiler, HttpRequest, RequestTemplate, Scope, Template};

/// Each recalled name may hold the earlier names many times over. So the size of one request grows with a power of
/// their number. Templates are the user's own, and nothing else bounds them.
const RECALLS: usize = 8;

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    compile_request(text);
    let template = match Compiler::default().compile(text) {
        Ok(template) => template,
        Err(error) => {
            assert!(text.is_char_boundary(error.position) && !error.message.is_empty());
            return;
        }
    };
    if !text.contains("{{") {
        assert_eq!(template.as_literal(), Some(text.as_bytes()));
    }
    if text.matches("{{$").count() > RECALLS {
        return;
    }
    let filled_in = render(&template);
    assert_eq!(render(&template), filled_in);
    if let Some(literal) = template.as_literal() {
        assert_eq!(filled_in, [literal, literal].concat());
    }
    // A byte that is nowhere in the template and comes from no part does not appear.
    if !template.holds(|byte| byte == b'\n') && !text.contains('\n') {
        assert!(!filled_in.contains(&b'\n'));
    }
}

/// Two requests.
fn render(template: &Template) -> Vec<u8> {
    let mut scope = Scope::new(7, 0, 2);
    let mut out = Vec::new();
    for _ in 0..2 {
        scope.next_request();
        template.render(&mut scope, &mut out);
    }
    out
}

fn compile_request(text: &str) {
    let mut lines = text.splitn(3, '\n');
    let url = format!("http://localhost:8080/{}", lines.next().unwrap_or_default());
    let headers: Vec<String> = lines.next().into_iter().map(str::to_owned).collect();
    let request = HttpRequest { method: "POST", url: &url, headers: &headers, body: lines.next() };
    match RequestTemplate::http(&request) {
        Ok((_, host, port)) => assert_eq!((host.as_str(), port), ("localhost", 8080)),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
