import type { Translated } from '../../../i18n/text.ts';
import type { SignInTexts } from './en.ts';

const de: Translated<SignInTexts> = {
  code: 'Code',
  codeHint: 'Die sechs Ziffern Ihrer Authenticator-App oder einer Ihrer Ersatzcodes.',
  codeTitle: 'Geben Sie Ihren Code ein',
  email: 'E-Mail-Adresse',
  forgot: 'Passwort vergessen?',
  invitationOnly: 'Neu hier? Bitten Sie jemanden mit einem Konto oder den Betreiber dieses Servers um eine Einladung.',
  or: 'oder',
  password: 'Passwort',
  passkey: 'Mit einem Passkey anmelden',
  provider: 'Mit {name} anmelden',
  providerFailed: 'Der Anbieter hat Sie nicht angemeldet. Versuchen Sie es noch einmal oder auf anderem Weg.',
  signIn: 'Anmelden',
  signUp: 'Registrieren',
  signUpQuestion: 'Noch kein Konto?',
};

export default de;
