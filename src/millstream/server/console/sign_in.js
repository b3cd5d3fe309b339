// The form for the token, shown if the page was opened without one.

import { h } from "./dom.js";
import { icon } from "./icons.js";

export function signIn(onToken) {
  const submit = (event) => {
    event.preventDefault();
    const token = new FormData(event.target).get("token").trim();
    if (token) onToken(token);
  };
  return h(
    "main",
    { class: "sign-in", id: "main", key: "sign-in" },
    h(
      "form",
      { class: "card", onsubmit: submit },
      icon("key"),
      h("h1", null, "This console requires a token"),
      h(
        "p",
        { class: "quiet" },
        "Unless the token was configured (server_token), the application wrote it to its log, and to the file ",
        h("code", null, "server.json"),
        " in its state directory. ",
        h("code", null, "millstream console"),
        " opens this page with the token.",
      ),
      h("label", { class: "field" }, h("span", null, "Token"), h("input", { name: "token", type: "password", autocomplete: "off", required: true })),
      h("button", { class: "button main", type: "submit" }, "Open the console"),
    ),
  );
}
