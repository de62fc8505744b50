// The search, which is loaded with its first use and works offline; copying of code; the menu of a phone.
import MiniSearch from 'minisearch';

const input = document.querySelector('.search input');
const found = document.querySelector('.found');
const menu = document.querySelector('.menu');
const pages = document.querySelector('#pages');

let index;
const loaded = () =>
  (index ??= fetch('/docs/search.json')
    .then((response) => (response.ok ? response.json() : Promise.reject(new Error(String(response.status)))))
    .then((entries) => {
      const search = new MiniSearch({
        fields: ['heading', 'page', 'text'],
        storeFields: ['heading', 'page', 'text'],
        searchOptions: { boost: { heading: 4, page: 2 }, prefix: true, fuzzy: (term) => (term.length > 4 ? 0.2 : 0) },
      });
      search.addAll(entries);
      return search;
    })
    .catch((error) => {
      index = undefined;
      throw error;
    }));

async function show() {
  const words = input.value.trim();
  if (words === '') return hide();
  let results;
  try {
    results = (await loaded()).search(words, { combineWith: 'AND' }).slice(0, 12);
  } catch {
    return print([line('p', 'The search could not be loaded. Is the service still running?')]);
  }
  if (input.value.trim() !== words) return;
  print(results.length === 0 ? [line('p', `Nothing has “${words}”.`)] : results.map(entry));
}

function entry({ id, heading, page, text, terms }) {
  const link = line('a', heading);
  link.href = `/docs/${id}`;
  const at = Math.max(0, ...terms.map((term) => text.toLowerCase().indexOf(term)));
  const part = text.slice(Math.max(0, at - 50), at + 90);
  link.append(line('small', `${page === heading ? '' : `${page} · `}${part}`));
  return link;
}

function line(tag, text) {
  const element = document.createElement(tag);
  element.textContent = text;
  return element;
}

function print(elements) {
  found.replaceChildren(...elements);
  found.hidden = false;
}

function hide() {
  found.hidden = true;
}

/** Up and down through the results, from the field and back to it. */
function move(event) {
  const stops = [input, ...found.querySelectorAll('a')];
  const at = stops.indexOf(document.activeElement) + (event.key === 'ArrowDown' ? 1 : -1);
  event.preventDefault();
  stops.at(Math.min(at, stops.length - 1))?.focus();
}

input.disabled = false;
input.addEventListener('focus', () => void loaded().catch(() => {}));
input.addEventListener('input', show);
document.querySelector('.search').addEventListener('keydown', (event) => {
  if (event.key === 'ArrowDown' || event.key === 'ArrowUp') move(event);
  if (event.key === 'Enter' && event.target === input) found.querySelector('a')?.click();
  if (event.key === 'Escape') {
    hide();
    input.blur();
  }
});
document.addEventListener('keydown', (event) => {
  if (event.key !== '/' || event.ctrlKey || event.metaKey || /^(input|textarea)$/i.test(event.target.tagName)) return;
  event.preventDefault();
  input.focus();
});
document.addEventListener('click', (event) => {
  if (!event.target.closest('.search')) hide();
});

menu.addEventListener('click', () => {
  const isOpen = pages.classList.toggle('open');
  menu.setAttribute('aria-expanded', String(isOpen));
});

for (const block of document.querySelectorAll('pre')) {
  const button = line('button', 'Copy');
  button.type = 'button';
  button.className = 'copy';
  button.addEventListener('click', () => {
    const isCopied = copied(block.querySelector('code').textContent);
    button.textContent = isCopied ? 'Copied' : 'Press Ctrl+C';
    setTimeout(() => (button.textContent = 'Copy'), 2000);
  });
  block.append(button);
  block.tabIndex = 0;
}

/** Without `navigator.clipboard`, which plain HTTP does not have: the text stays selected where even this fails. */
function copied(text) {
  const field = document.createElement('textarea');
  field.value = text;
  field.style.position = 'fixed';
  document.body.append(field);
  field.select();
  const isDone = document.execCommand('copy');
  field.remove();
  return isDone;
}
