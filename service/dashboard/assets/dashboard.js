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
