import { ApiError } from '../../platform/errors.ts';
import { newAccountId } from '../base62.ts';
import type { OperationServices } from '../operation.ts';
import type { Config, SignInConfig } from '../../config/config.ts';
import type { Mailer } from '../../notifications/mail/mailer.ts';
import { StoreError } from '../../store/store-error.ts';
import { Attempts } from './attempts.ts';
import { cookieOf, sessionCookie, signedValue } from './cookies.ts';
import type { Auth } from './auth.ts';
import { emailChangeOf } from './email-change.ts';
import type { EmailChange } from './email-change.ts';
import { knownMail, newAddressMail, oldAddressMail, resetMail, verificationMail } from './mails.ts';
import { Passwords } from './password.ts';
import type { HashCost } from './password.ts';

export interface UsersOptions {
  /** Of a hash of a password; left out: what production needs. */
  readonly hashCost?: HashCost;
  readonly operations: OperationServices;
  readonly config: () => Pick<Config, 'signIn'>;
  /** Where the account host is reached. */
  readonly accountUrl: () => string;
  readonly mailer: Mailer;
}

/** A person who is signed in. */
export interface SignedInPerson {
  readonly userId: string;
  readonly sessionId: string;
  readonly name: string;
  readonly email: string;
  readonly isOperator: boolean;
  /** A code of an authenticator ends their sign-in. */
  readonly hasTwoFactor: boolean;
  /** When they last proved who they are, which is when the session began. */
  readonly provedAt: number;
}

/** Mails of one kind to one address in an hour; more are not sent, and nobody is told. */
const mailsAnHourMax = 3;
const hourMs = 3_600_000;
const addressesMax = 10_000;
const askAgainMs = 5_000;

interface KnownAuth {
  readonly signIn: SignInConfig;
  readonly accountUrl: string;
  readonly made: Promise<Auth>;
  readonly askedAt: number;
}

/** People: who is signed in, by which account they belong to, and what signs them in. */
export class Users {
  readonly #options: UsersOptions;
  readonly #secret: string;
  readonly passwords: Passwords;
  readonly attempts: Attempts;
  /** By provider; undefined: without one. Routes ask for those of the configuration alone. */
  readonly #auths = new Map<string | undefined, KnownAuth>();
  readonly #mailed = new Map<string, { readonly startsAt: number; count: number }>();

  constructor(options: UsersOptions) {
    this.#options = options;
    this.passwords = new Passwords(options.hashCost);
    this.#secret = options.operations.secret.signIn.export().toString('hex');
    const { repositories, now } = options.operations;
    this.attempts = new Attempts({ repositories, now, secret: this.#secret });
  }

  /** Forgets a batch of the sessions, links, invitations and failed attempts that are over; false: there were none. */
  async tidy(): Promise<boolean> {
    const { repositories, now } = this.#options.operations;
    const isMore = await this.attempts.tidy();
    return (await repositories.forgetExpired({ at: now() })) > 0 || isMore;
  }

  /** By the `Cookie` header; undefined: there is no session, or it is over. Asks the database each time, so what ends, ends at once. */
  async signedIn(cookie: string): Promise<SignedInPerson | undefined> {
    const { accountUrl, operations } = this.#options;
    const sent = cookieOf(cookie, sessionCookie(accountUrl()));
    const token = sent === undefined ? undefined : signedValue(sent, this.#secret);
    if (token === undefined) return undefined;
    const found = await operations.repositories.findSession({ token, at: operations.now() });
    if (found === undefined) return undefined;
    const { createdAt, ...person } = found;
    return { ...person, provedAt: createdAt };
  }

  /** The role of a person in an account; without one that is named, in the first that they joined. */
  async membership(userId: string, accountId: string | undefined) {
    const found = await this.#options.operations.repositories.findMembership({ userId, accountId });
    return found === undefined
      ? undefined
      : { id: found.accountId, role: found.role, isSuspended: found.accountStatus !== 'active' };
  }

  /** What signs in without a provider; loaded when it is first needed, and made anew when the configuration of sign-in has changed. */
  async auth(): Promise<Auth> {
    return await this.#authOf(undefined).made;
  }

  /**
   * The same for sign-in at a provider of the configuration, of its own: nobody else waits for a provider that does not answer.
   * One that could not be asked what it is, is asked again when it is next needed, every five seconds at most.
   */
  async authFor(provider: string): Promise<Auth> {
    const known = this.#authOf(provider);
    const auth = await known.made;
    if (this.#options.operations.now() < known.askedAt + askAgainMs || (await knows(auth, provider))) return auth;
    if (this.#auths.get(provider) === known) this.#auths.delete(provider);
    return await this.#authOf(provider).made;
  }

  #authOf(provider: string | undefined): KnownAuth {
    const { signIn } = this.#options.config();
    const accountUrl = this.#options.accountUrl();
    let known = this.#auths.get(provider);
    if (known?.signIn !== signIn || known.accountUrl !== accountUrl) {
      const oidc = signIn.oidc.filter(({ id }) => id === provider);
      const made = this.#make({ ...signIn, oidc }, accountUrl);
      known = { signIn, accountUrl, made, askedAt: this.#options.operations.now() };
      this.#auths.set(provider, known);
    }
    return known;
  }

  /** Whoever has no account gets one of their own, where sign-up is open. */
  async welcome(userId: string, name: string): Promise<void> {
    const { operations, config } = this.#options;
    if (config().signIn.signUp !== 'open') return;
    const { repositories, ledger, newId, now } = operations;
    if ((await repositories.findMembership({ userId, accountId: undefined })) !== undefined) return;
    const [id, at] = [newAccountId(), now()];
    try {
      await ledger.createAccount({
        id,
        name,
        creditLimitMicrocents: 0n,
        at,
        changeId: newId(),
        recording: [
          { name: 'person_awaited', values: [userId] },
          { name: 'first_member', values: [id, at, userId] },
        ],
      });
    } catch (error) {
      // They have signed in twice at once, and the other made it.
      if (!(error instanceof StoreError && error.code === 'conflict')) throw error;
    }
  }

  async #make(signIn: SignInConfig, accountUrl: string): Promise<Auth> {
    const { operations } = this.#options;
    const { createAuth, resetMinutes, verificationHours } = await import('./auth.ts');
    return createAuth({
      repositories: operations.repositories,
      secret: this.#secret,
      signIn,
      accountUrl,
      passwords: this.passwords,
      now: operations.now,
      sendVerification: ({ email }, token) => {
        const words = emailChangeOf(token) === undefined ? verificationMail : newAddressMail;
        return this.#mail('verification', email, words(accountUrl, token, verificationHours));
      },
      sendReset: ({ email }, token) => this.#mail('reset', email, resetMail(accountUrl, token, resetMinutes)),
      sendKnown: ({ email }) => this.#mail('known', email, knownMail(accountUrl)),
    });
  }

  /** Tells the address that a person had: who has taken their account cannot do it in silence. */
  async notifyChange({ from, to }: EmailChange): Promise<void> {
    await this.#mail('email-changed', from, oldAddressMail(this.#options.accountUrl(), to));
  }

  async #mail(kind: string, to: string, words: { readonly subject: string; readonly text: string }): Promise<void> {
    if (!this.#mayMail(`${kind} ${to}`)) return;
    await this.#options.mailer.send({ to, kind, accountId: null, ...words });
  }

  /** Nobody's mailbox is filled by others. */
  #mayMail(key: string): boolean {
    const now = this.#options.operations.now();
    const known = this.#mailed.get(key);
    if (known !== undefined && now < known.startsAt + hourMs) {
      known.count += 1;
      return known.count <= mailsAnHourMax;
    }
    this.#mailed.delete(key);
    if (this.#mailed.size >= addressesMax) this.#mailed.delete(this.#mailed.keys().next().value!);
    this.#mailed.set(key, { startsAt: now, count: 1 });
    return true;
  }
}

/** Whether it could be asked what it is. */
async function knows(auth: Auth, provider: string): Promise<boolean> {
  const { socialProviders } = await auth.$context;
  return socialProviders.some(({ id }) => id === provider);
}

/** The one answer for a link that was forged, used, taken back, or is too old. */
export const deadLink = (): ApiError =>
  new ApiError('http_404', 'This link is not valid, or not any more. Ask for a new one.');
