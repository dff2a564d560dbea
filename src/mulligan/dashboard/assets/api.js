// Calls of the HTTP interface. Every change that a page makes goes through `send`.

/** An answer that is an error, with what the server said. */
export class ApiError extends Error {
  constructor(problem) {
    super(problem.problems?.length ? describeProblems(problem.problems) : problem.detail ?? "the server refused this");
    this.problem = problem;
    this.hint = problem.hint ?? "";
    this.status = problem.status ?? 0;
  }
}

/** What is wrong with the text of a workflow, by line; the first ones. */
function describeProblems(problems) {
  const lines = problems.slice(0, 3).map(({ line, message, hint }) => `${line ? `line ${line}: ` : ""}${message}${hint ? `; ${hint}` : ""}`);
  return lines.join("\n") + (problems.length > 3 ? `\nand ${problems.length - 3} more` : "");
}

/** What an answer that is an error says, as one text. */
export async function problemText(answer) {
  const problem = await readProblem(answer);
  return problem.hint ? `${problem.detail}; ${problem.hint}` : problem.detail;
}

async function readProblem(answer) {
  try {
    return await answer.json();
  } catch {
    return { status: answer.status, detail: `the server answered ${answer.status}` };
  }
}

/** The JSON below /api/v1/. `ApiError` for an error, with status 0 if the server does not answer. */
export async function get(path, options = {}) {
  return request("GET", path, undefined, options);
}

/** Send a change: the JSON of the answer, or null if it has none. */
export async function send(method, path, body, options = {}) {
  return request(method, path, body, options);
}

async function request(method, path, body, { headers = {}, signal } = {}) {
  let answer;
  try {
    answer = await fetch(`/api/v1/${path}`, {
      method,
      signal,
      headers: { ...(body === undefined ? {} : { "content-type": "application/json" }), ...headers },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError({ status: 0, detail: "the server does not answer", hint: "try again when it is back" });
  }
  if (answer.status === 401) {
    // The session has ended: the page itself says how to log in.
    location.reload();
  }
  if (!answer.ok) throw new ApiError(await readProblem(answer));
  return answer.status === 204 ? null : answer.json();
}

/** One segment of a path. */
export const segment = (text) => encodeURIComponent(String(text));
