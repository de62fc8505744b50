import { page } from './pages.ts';

/** A page with a form, most of which a link with a token opens, and what the form is sent to as JSON. */
interface FormPage {
  readonly title: string;
  /** HTML. */
  readonly intro: string;
  readonly post: `/v1/${string}`;
  readonly fields: readonly Field[];
  readonly button: string;
  /** Said when it is done. */
  readonly done: string;
  /** Where it leads then; left out: nowhere. */
  readonly next?: `/${string}`;
  /** Nothing is behind its `#`. */
  readonly hasNoToken?: true;
}

interface Field {
  readonly name: string;
  readonly label: string;
  readonly type: 'text' | 'email' | 'password';
  readonly autocomplete: string;
  readonly optional?: boolean;
}

const name: Field = { name: 'name', label: 'Your name', type: 'text', autocomplete: 'name' };
const newPassword: Field = {
  name: 'password',
  label: 'Password (10 characters or more)',
  type: 'password',
  autocomplete: 'new-password',
};

const token: Field = {
  name: 'token',
  label: 'Token (the part of the link behind #)',
  type: 'text',
  autocomplete: 'off',
};

const pages: Readonly<Record<string, FormPage>> = {
  '/welcome': {
    title: 'Welcome',
    intro: '<p>Whoever opens this link first runs this server: create your account.</p>',
    post: '/v1/owner',
    fields: [name, { name: 'email', label: 'E-mail address', type: 'email', autocomplete: 'username' }, newPassword],
    button: 'Create the owner account',
    done: 'Done. You run this server now, and are signed in.',
  },
  '/sign-in': {
    title: 'Sign in',
    intro: '',
    post: '/v1/auth/sign-in',
    fields: [
      { name: 'email', label: 'E-mail address', type: 'email', autocomplete: 'username' },
      { name: 'password', label: 'Password', type: 'password', autocomplete: 'current-password' },
    ],
    button: 'Sign in',
    done: 'You are signed in.',
    next: '/topup',
    hasNoToken: true,
  },
  '/sign-in/code': {
    title: 'Sign in',
    intro: '<p>Your authenticator shows the code.</p>',
    post: '/v1/auth/two-factor/verify',
    fields: [{ name: 'code', label: 'Code of six digits', type: 'text', autocomplete: 'one-time-code' }],
    button: 'Sign in',
    done: 'You are signed in.',
    next: '/topup',
    hasNoToken: true,
  },
  '/verify-email': {
    title: 'Confirm your e-mail address',
    intro: '',
    post: '/v1/auth/verify-email',
    fields: [],
    button: 'Confirm',
    done: 'Confirmed. You can sign in now.',
  },
  '/reset-password': {
    title: 'Choose a new password',
    intro: '<p>You will be signed out everywhere.</p>',
    post: '/v1/auth/password/reset',
    fields: [newPassword],
    button: 'Set the password',
    done: 'Done. Sign in with the new password.',
  },
  '/invitation': {
    title: 'You are invited',
    intro: '<p>If you have signed in here before, sign in first and leave name and password empty.</p>',
    post: '/v1/invites/accept',
    fields: [
      { ...name, optional: true },
      { ...newPassword, optional: true },
    ],
    button: 'Accept',
    done: 'You have joined.',
  },
};

/** The HTML of a page at a path, undefined where there is none. */
export function formPageAt(path: string): string | undefined {
  if (!Object.hasOwn(pages, path)) return undefined;
  const { title, intro, post, fields, button, done, next, hasNoToken } = pages[path]!;
  const inputs = hasNoToken === true ? fields : [...fields, token];
  return page(
    title,
    `${intro}<noscript><p>This page needs its script, which comes from this server. Whoever runs the server can also use <code>tokenhouse owner create</code>.</p></noscript>
<form data-post="${post}" data-done="${done}"${next === undefined ? '' : ` data-next="${next}"`} method="post">
${inputs.map(input).join('')}<p><button>${button}</button></p>
<p role="status" aria-live="polite"></p>
</form>
<script src="/welcome.js" defer></script>`,
  );
}

const input = ({ name, label, type, autocomplete, optional }: Field): string =>
  `<p><label>${label}<br><input name="${name}" type="${type}" autocomplete="${autocomplete}" size="40"${optional === true ? '' : ' required'}></label></p>\n`;

/**
 * The script of these pages. The token stays behind the `#`, which no server, proxy and log sees; it is taken out of the
 * address bar and the history at once.
 */
export const formScript = `'use strict';
const form = document.querySelector('form[data-post]');
const status = form.querySelector('[role=status]');
const token = decodeURIComponent(location.hash.slice(1));
if (token !== '' && form.elements.token) {
  form.elements.token.value = token;
  form.elements.token.closest('p').hidden = true;
  history.replaceState(null, '', location.pathname);
}
form.addEventListener('submit', async (event) => {
  event.preventDefault();
  const button = form.querySelector('button');
  button.disabled = true;
  status.textContent = 'One moment…';
  const body = {};
  for (const { name, value } of form.elements) if (name !== '' && value !== '') body[name] = value;
  try {
    const answer = await fetch(form.dataset.post, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    const told = await answer.json();
    if (answer.ok) {
      if (told.two_factor_required) location.assign('/sign-in/code');
      else {
        status.textContent = form.dataset.done;
        if (form.dataset.next) location.assign(form.dataset.next);
      }
      return;
    }
    status.textContent = told.error.message;
  } catch {
    status.textContent = 'The server does not answer. Try again.';
  }
  button.disabled = false;
});
`;
