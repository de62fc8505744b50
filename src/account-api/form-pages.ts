import type { SignInConfig } from '../config/config.ts';
import { escaped, page } from '../platform/html.ts';

/** A page with a form, most of which a link with a token opens; the form is sent to `post` as JSON. */
interface FormPage {
  readonly title: string;
  /** HTML. */
  readonly intro: string;
  readonly post: `/v1/${string}`;
  readonly fields: readonly Field[];
  readonly button: string;
  /** Displayed when it is done. */
  readonly done: string;
  /** Where it then goes automatically: `requested`, to where the user came from. */
  readonly next?: 'requested';
  /** Where a link then leads. */
  readonly link?: `/${string}`;
  /** Its URL has nothing after the `#`. */
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
    intro: '<p>The first person to open this link becomes the operator of this server: create your account.</p>',
    post: '/v1/owner',
    fields: [name, { name: 'email', label: 'E-mail address', type: 'email', autocomplete: 'username' }, newPassword],
    button: 'Create the owner account',
    done: 'Done. You are now the operator of this server, and signed in.',
    link: '/',
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
    next: 'requested',
    hasNoToken: true,
  },
  '/sign-in/code': {
    title: 'Sign in',
    intro: '<p>Enter the code that your authenticator app shows.</p>',
    post: '/v1/auth/two-factor/verify',
    fields: [{ name: 'code', label: 'Six-digit code', type: 'text', autocomplete: 'one-time-code' }],
    button: 'Sign in',
    done: 'You are signed in.',
    next: 'requested',
    hasNoToken: true,
  },
  '/sign-up': {
    title: 'Sign up',
    intro: '',
    post: '/v1/auth/sign-up',
    fields: [name, { name: 'email', label: 'E-mail address', type: 'email', autocomplete: 'username' }, newPassword],
    button: 'Sign up',
    done: 'A mail is on its way to this address: open the link in it, then sign in.',
    hasNoToken: true,
  },
  '/forgot-password': {
    title: 'Ask for a new password',
    intro: '<p>A link is sent to your address. It works once, within an hour.</p>',
    post: '/v1/auth/password/forgot',
    fields: [{ name: 'email', label: 'E-mail address', type: 'email', autocomplete: 'username' }],
    button: 'Send the link',
    done: 'If an account uses this address, we have sent a mail to it.',
    hasNoToken: true,
  },
  '/verify-email': {
    title: 'Confirm your e-mail address',
    intro: '',
    post: '/v1/auth/verify-email',
    fields: [],
    button: 'Confirm',
    done: 'Confirmed. You can sign in now.',
    link: '/sign-in',
  },
  '/reset-password': {
    title: 'Choose a new password',
    intro: '<p>You will be signed out everywhere.</p>',
    post: '/v1/auth/password/reset',
    fields: [newPassword],
    button: 'Set the password',
    done: 'Done. Sign in with the new password.',
    link: '/sign-in',
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
    link: '/',
  },
};

/** Every path with a page, including those that a configuration leaves out. */
export const formPaths: readonly string[] = Object.keys(pages);

/** The HTML of the page at a path; undefined where there is none. */
export function formPageAt(path: string, signIn: SignInConfig): string | undefined {
  if (!Object.hasOwn(pages, path) || (path === '/sign-up' && signIn.signUp !== 'open')) return undefined;
  const { title, intro, post, fields, button, done, next, link, hasNoToken } = pages[path]!;
  const inputs = hasNoToken === true ? fields : [...fields, token];
  const leadsTo = (next === undefined ? '' : ' data-next=""') + (link === undefined ? '' : ` data-link="${link}"`);
  return page(
    title,
    `${intro}<noscript><p>This page needs JavaScript, which comes from this server. The operator of the server can also run <code>tokenhouse owner create</code>.</p></noscript>
<form data-post="${post}" data-done="${done}"${leadsTo} method="post">
${inputs.map(input).join('')}<p><button>${button}</button></p>
</form>
<p role="status"></p>
${path === '/sign-in' ? otherWays(signIn) : ''}${pageScriptTag}`,
  );
}

/** Ends each page with `pageScript`, which reports what it does in the element with the role `status`. */
export const pageScriptTag = '<script src="/page.js" defer></script>';

/** Other ways to sign in, and help for users who cannot. */
function otherWays({ signUp, oidc }: SignInConfig): string {
  const providers = oidc.map(
    ({ id, name }) =>
      `<p><button type="button" data-provider="${escaped(id)}">Sign in with ${escaped(name)}</button></p>\n`,
  );
  return `<p><button type="button" data-passkey="sign-in" hidden>Sign in with a passkey</button></p>
${providers.join('')}<p><a href="/forgot-password">Forgot your password?</a></p>
<p>${signUp === 'open' ? 'No account yet? <a href="/sign-up">Sign up</a>' : 'New here? Ask somebody who has an account, or the operator of this server, for an invitation.'}</p>
`;
}

const input = ({ name, label, type, autocomplete, optional }: Field): string =>
  `<p><label>${label}<br><input name="${name}" type="${type}" autocomplete="${autocomplete}" size="40"${optional === true ? '' : ' required'}></label></p>\n`;
