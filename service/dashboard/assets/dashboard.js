"use strict";

// Copies the text of an element: <button data-copy="#id">.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const source = document.querySelector(button.dataset.copy);
  await navigator.clipboard.writeText(source.textContent.trim());
  button.textContent = button.dataset.done;
});

// Prevents that a form is sent twice by a second click on the same button.
document.addEventListener("submit", (event) => {
  const form = event.target;
  const sent = `sent ${event.submitter?.value ?? ""}`;
  if (form.dataset.sent === sent) {
    event.preventDefault();
    return;
  }
  form.dataset.sent = sent;
  window.setTimeout(() => delete form.dataset.sent, 10000);
});

// Asks before an action that cannot be undone: <button data-confirm="Text">.
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-confirm]");
  if (button && !window.confirm(button.dataset.confirm)) event.preventDefault();
});

// Asks before a form with changes is left: <form data-asks>. <a data-leave> leaves it on purpose.
for (const form of document.querySelectorAll("[data-asks]")) {
  let isChanged = "posted" in document.body.dataset;
  const keep = () => (isChanged = false);
  form.addEventListener("input", () => (isChanged = true));
  form.addEventListener("submit", keep);
  window.addEventListener("pagehide", keep);
  form.querySelector("[data-leave]")?.addEventListener("click", keep);
  window.addEventListener("beforeunload", (event) => {
    if (isChanged) event.preventDefault();
  });
}

// Shows the totals of a form as it is filled in: <form data-totals="#id">.
for (const form of document.querySelectorAll("[data-totals]")) {
  const totals = document.querySelector(form.dataset.totals);
  let latest;
  form.addEventListener("change", async () => {
    latest?.abort();
    const request = (latest = new AbortController());
    const body = new URLSearchParams(new FormData(form));
    body.set("do", "totals");
    try {
      const options = { method: "POST", body, signal: request.signal };
      const answer = await fetch(window.location.href, options);
      const part = new DOMParser().parseFromString(await answer.text(), "text/html");
      totals.replaceChildren(...part.querySelector(form.dataset.totals).childNodes);
    } catch {
      if (request.signal.aborted) return;
      for (const amount of totals.querySelectorAll("dd")) amount.textContent = "–";
    }
  });
}

// A page that Back shows as it was left is loaded again: its record may have changed since.
window.addEventListener("pageshow", (event) => {
  if (!event.persisted) return;
  for (const form of document.forms) delete form.dataset.sent;
  if (!("posted" in document.body.dataset)) window.location.reload();
});
