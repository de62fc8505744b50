/**
 * The one script of our pages: sends forms as JSON, and does what only a browser can: passkeys, and the way to a provider.
 *
 * The token of a link stays behind the `#`, which no server, proxy or log sees; it is removed from the address bar and the
 * history at once. `next` is one of our own pages, never an address from a foreign link.
 */
export const pageScript = `'use strict';
const form = document.querySelector('form[data-post]');
const status = document.querySelector('[role=status]');
const query = new URLSearchParams(location.search);
const pages = ['/', '/topup'];
const next = pages.includes(query.get('next')) ? query.get('next') : '/';

async function send(path, body) {
  const json = { headers: { 'content-type': 'application/json' }, body: JSON.stringify(body) };
  const answer = await fetch(path, { method: 'POST', ...(body === undefined ? {} : json) }).catch(() => undefined);
  const result = await answer?.json().catch(() => undefined);
  if (result === undefined) throw new Error('The server does not answer. Try again.');
  if (!answer.ok) throw new Error(result.error.message);
  return result;
}

// A button waits for its work; when that fails it can be pressed again.
async function press(button, work) {
  button.disabled = true;
  status.textContent = 'One moment…';
  try {
    await work();
  } catch (error) {
    status.textContent =
      error.name === 'NotAllowedError' ? 'No passkey was given, or it took too long.' : error.message;
    button.disabled = false;
  }
}

function finish(body) {
  const { done, next: leadsTo, link } = form.dataset;
  if (body.two_factor_required) return location.assign('/sign-in/code?next=' + encodeURIComponent(next));
  status.textContent = done;
  if (leadsTo !== undefined) location.assign(leadsTo === '' ? next : leadsTo);
  if (link !== undefined) {
    const a = document.createElement('a');
    [a.href, a.textContent] = [link, 'Continue'];
    status.append(' ', a);
  }
}

if (form !== null) {
  const token = decodeURIComponent(location.hash.slice(1));
  if (token !== '' && form.elements.token) {
    form.elements.token.value = token;
    form.elements.token.closest('p').hidden = true;
    history.replaceState(null, '', location.pathname);
  }
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    const fields = [...form.elements].filter(({ name, value }) => name !== '' && value !== '');
    const body = Object.fromEntries(fields.map(({ name, value }) => [name, value]));
    press(form.querySelector('button'), async () =>
      finish(await send(form.dataset.post, form.dataset.bare === undefined ? body : undefined)),
    );
  });
}

for (const button of document.querySelectorAll('[data-provider]'))
  button.addEventListener('click', () =>
    press(button, async () => {
      const { url } = await send('/v1/auth/oidc/' + button.dataset.provider);
      // The provider sends everybody back to the first page.
      sessionStorage.setItem('next', next);
      location.assign(url);
    }),
  );
if (location.pathname === '/') {
  const requested = sessionStorage.getItem('next');
  sessionStorage.removeItem('next');
  if (query.get('sign_in') === 'failed') status.textContent = 'The provider did not sign you in. Try again, or sign in another way.';
  else if (requested !== '/' && pages.includes(requested)) location.replace(requested);
}

const passkeyWork = {
  'sign-in': async () => {
    const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(await send('/v1/auth/sign-in/passkey/options'));
    const credential = await navigator.credentials.get({ publicKey });
    finish(await send('/v1/auth/sign-in/passkey', { credential: credential.toJSON() }));
  },
  create: async () => {
    const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(await send('/v1/auth/passkeys/options'));
    const credential = await navigator.credentials.create({ publicKey });
    await send('/v1/auth/passkeys', { credential: credential.toJSON() });
    status.textContent = 'The passkey is registered: you can sign in with it.';
  },
};
// Browsers that cannot read options as JSON are not asked.
if (globalThis.PublicKeyCredential?.parseRequestOptionsFromJSON !== undefined)
  for (const button of document.querySelectorAll('[data-passkey]')) {
    button.hidden = false;
    button.addEventListener('click', () => press(button, passkeyWork[button.dataset.passkey]));
  }
`;
