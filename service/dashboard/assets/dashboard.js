"use strict";

// Copies the text of an element: <button data-copy="#id">.
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const source = document.querySelector(button.dataset.copy);
  await navigator.clipboard.writeText(source.textContent.trim());
  button.textContent = button.dataset.done;
});

// Prevents that a form is sent twice by a second click.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.dataset.sent && !form.dataset.again) {
    event.preventDefault();
    return;
  }
  form.dataset.sent = "yes";
  window.setTimeout(() => delete form.dataset.sent, 10000);
});

// Asks before an action that cannot be undone: <button data-confirm="Text">.
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-confirm]");
  if (button && !window.confirm(button.dataset.confirm)) event.preventDefault();
});

// Shows the totals of a form as it is filled in: <form data-totals="#id">.
for (const form of document.querySelectorAll("[data-totals]")) {
  form.addEventListener("change", async () => {
    const body = new URLSearchParams(new FormData(form));
    body.set("do", "check");
    const answer = await fetch(window.location.pathname, { method: "POST", body });
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const totals = page.querySelector(form.dataset.totals);
    document.querySelector(form.dataset.totals).replaceChildren(...totals.childNodes);
  });
}
