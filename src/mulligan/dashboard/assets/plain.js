// The page for somebody who is not logged in: exchanges a token for a session of this browser.
import { problemText } from "./api.js";

const form = document.getElementById("login");
form?.addEventListener("submit", async (event) => {
  event.preventDefault();
  const said = document.getElementById("problem");
  const token = form.elements.token.value.trim();
  said.textContent = "";
  try {
    const answer = await fetch("/api/v1/logins", { method: "POST", headers: { authorization: `Bearer ${token}` } });
    if (!answer.ok) {
      said.textContent = answer.status === 401 ? "this token is not valid here" : await problemText(answer);
      // What is pasted now replaces it, although nobody can see what the field has.
      form.elements.token.select();
      return;
    }
    const { url } = await answer.json();
    const code = new URL(url).searchParams.get("code");
    const next = location.pathname === "/login" ? "/" : location.pathname + location.search;
    location.replace(`/login?code=${encodeURIComponent(code)}&next=${encodeURIComponent(next)}`);
  } catch {
    said.textContent = "the server does not answer";
  }
});
