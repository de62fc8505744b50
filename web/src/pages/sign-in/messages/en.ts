import type { Catalogue } from '../../../i18n/text.ts';

const en = {
  code: 'Code',
  codeHint: 'The six digits that your authenticator app shows, or one of your backup codes.',
  codeTitle: 'Enter your code',
  email: 'E-mail address',
  forgot: 'Forgot your password?',
  invitationOnly: 'New here? Ask somebody who has an account, or the operator of this server, for an invitation.',
  or: 'or',
  password: 'Password',
  passkey: 'Sign in with a passkey',
  provider: 'Sign in with {name}',
  providerFailed: 'The provider did not sign you in. Try again, or sign in another way.',
  signIn: 'Sign in',
  signUp: 'Sign up',
  signUpQuestion: 'No account yet?',
} as const satisfies Catalogue;

export default en;
export type SignInTexts = typeof en;
