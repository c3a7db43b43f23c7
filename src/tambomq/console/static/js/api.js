// The JSON API. Every call of the console goes through here; the server's sentence is the error's text.

const ROOT = "/api/v1/";

export class ApiError extends Error {
  constructor(status, kind, title) {
    super(title);
    this.status = status;
    this.kind = kind;
  }
}

/** Who is logged in, and what they may do. Filled by `openSession`. */
export const session = { user: "", role: "viewer", csrf: "", read_only: true, needs_login: false, can_log_out: false };

/** Nobody is logged in any more, or their session has ended. */
export function forgetSession() {
  Object.assign(session, { user: "", role: null, csrf: "", needs_login: true, can_log_out: false });
}

export const mayAct = () => session.role === "operator" && !session.read_only;

export async function openSession() {
  Object.assign(session, await get("session"));
  return session;
}

export async function logIn(token) {
  Object.assign(session, await post("login", {}, { token }));
}

export async function logOut() {
  await post("logout");
  await openSession().catch(() => {});
}

export function get(path, query = {}, signal = undefined) {
  return call(path, query, { signal });
}

export function post(path, query = {}, body = {}) {
  const headers = { "Content-Type": "application/json", "X-Tambo-CSRF": session.csrf };
  return call(path, query, { method: "POST", headers, body: JSON.stringify(body) });
}

async function call(path, query, options) {
  const wanted = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const search = new URLSearchParams(wanted.flatMap(([key, value]) => [value].flat().map((item) => [key, item])));
  let answer;
  try {
    answer = await fetch(`${ROOT}${path}${search.size ? `?${search}` : ""}`, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "The console's server does not answer. Is tambo still running there?");
  }
  if (!answer.ok) throw await problem(answer);
  return answer.status === 204 ? null : answer.json();
}

async function problem(answer) {
  const said = await answer.json().catch(() => ({}));
  const error = new ApiError(answer.status, said.kind ?? "", said.title || `The server answered ${answer.status} without a reason.`);
  if (error.status === 401 && error.kind !== "wrong_token") document.dispatchEvent(new CustomEvent("tambo:login"));
  return error;
}

/** The list in an answer that is a list itself, or holds it under `name`. */
export const listIn = (answer, name) => (Array.isArray(answer) ? answer : (answer?.[name] ?? []));
