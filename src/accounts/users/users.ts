import { ApiError } from '../../platform/errors.ts';
import { newAccountId } from '../base62.ts';
import { newPersonId } from '../owner.ts';
import type { OperationServices } from '../operation.ts';
import type { Config, SignInConfig } from '../../config/config.ts';
import type { Mailer } from '../../notifications/mail/mailer.ts';
import type { Viewing } from '../../store/repositories/users.ts';
import { StoreError } from '../../store/store-error.ts';
import { endViews } from '../account-views.ts';
import { endSessionKeys } from '../session-keys.ts';
import { Attempts } from './attempts.ts';
import { cookieOf, sessionCookie, signedValue } from './cookies.ts';
import type { Auth } from './auth.ts';
import { emailChangeOf, rememberChangeLink } from './email-change.ts';
import type { EmailChange } from './email-change.ts';
import { knownMail, newAddressMail, oldAddressMail, resetMail, verificationMail } from './mails.ts';
import { Passwords } from './password.ts';
import type { HashCost } from './password.ts';

export interface UsersOptions {
  /** Cost of a password hash; omitted: the production cost. */
  readonly hashCost?: HashCost;
  readonly operations: OperationServices;
  readonly config: () => Pick<Config, 'signIn'>;
  /** URL of the account host. */
  readonly accountUrl: () => string;
  readonly mailer: Mailer;
}

/** A signed-in user. */
export interface SignedInPerson {
  readonly userId: string;
  readonly sessionId: string;
  readonly name: string;
  readonly email: string;
  /** false as well for an operator who looks at an account as a viewer. */
  readonly isOperator: boolean;
  /** Set if the session has the rights of a viewer of this account, and no others. */
  readonly viewing: Viewing | undefined;
  /** Whether their sign-in requires an authenticator code. */
  readonly hasTwoFactor: boolean;
  /** When they last proved their identity, in milliseconds since 1970: when the session began. Step-up checks it. */
  readonly provedAt: number;
}

/** Maximum mails of one kind to one address per hour; more are silently not sent. */
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

/** Users: who is signed in, their accounts, and their sign-in methods. */
export class Users {
  readonly #options: UsersOptions;
  readonly #secret: string;
  readonly passwords: Passwords;
  readonly attempts: Attempts;
  /** Keyed by provider; undefined: without one. Routes request only configured providers. */
  readonly #auths = new Map<string | undefined, KnownAuth>();
  readonly #mailed = new Map<string, { readonly startsAt: number; count: number }>();

  constructor(options: UsersOptions) {
    this.#options = options;
    this.passwords = new Passwords(options.hashCost);
    this.#secret = options.operations.secret.signIn.export().toString('hex');
    const { repositories, now } = options.operations;
    this.attempts = new Attempts({ repositories, now, secret: this.#secret });
  }

  /** Deletes a batch of expired sessions, links, invitations and failed attempts; false: there were none. */
  async tidy(): Promise<boolean> {
    const { operations } = this.#options;
    const { repositories, now } = operations;
    const isMore = (await endViews(operations)) || (await endSessionKeys(operations)) || (await this.attempts.tidy());
    return (await repositories.forgetExpired({ at: now() })) > 0 || isMore;
  }

  /**
   * Finds the user by the `Cookie` header; undefined: no session, or it is over. Queries the database each time, so a session ends
   * immediately.
   */
  async signedIn(cookie: string): Promise<SignedInPerson | undefined> {
    const { accountUrl, operations } = this.#options;
    const sent = cookieOf(cookie, sessionCookie(accountUrl()));
    const token = sent === undefined ? undefined : signedValue(sent, this.#secret);
    if (token === undefined) return undefined;
    const found = await operations.repositories.findSession({ token, at: operations.now() });
    if (found === undefined) return undefined;
    const { createdAt, isOperator, ...person } = found;
    return { ...person, isOperator: isOperator && person.viewing === undefined, provedAt: createdAt };
  }

  /** The role of a user in an account; by default in the first that they joined. */
  async membership(userId: string, accountId: string | undefined) {
    const found = await this.#options.operations.repositories.findMembership({ userId, accountId });
    return found === undefined
      ? undefined
      : { id: found.accountId, role: found.role, isSuspended: found.accountStatus !== 'active' };
  }

  /** Sign-in without a provider; loaded on first use, and rebuilt when its configuration has changed. */
  async auth(): Promise<Auth> {
    return await this.#authOf(undefined).made;
  }

  /**
   * The same for a configured provider, separately, so that a provider that does not answer delays no one else. A provider whose metadata
   * could not be fetched is asked again on its next use, at most every five seconds.
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

  /** Creates an account for a user without one, if sign-up is open. */
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
      // They signed in twice at the same time, and the other sign-in created it.
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
      sendVerification: async ({ id, email }, token) => {
        const isChange = emailChangeOf(token) !== undefined;
        const at = operations.now();
        if (isChange)
          await rememberChangeLink(operations.repositories, {
            id: newPersonId(),
            userId: id,
            token,
            at,
            expiresAt: at + verificationHours * hourMs,
          });
        const words = isChange ? newAddressMail : verificationMail;
        await this.#mail('verification', email, words(accountUrl, token, verificationHours));
      },
      sendReset: ({ email }, token) => this.#mail('reset', email, resetMail(accountUrl, token, resetMinutes)),
      sendKnown: ({ email }) => this.#mail('known', email, knownMail(accountUrl)),
    });
  }

  /** Notifies the user's former address, so that an intruder cannot change it silently. */
  async notifyChange({ from, to }: EmailChange): Promise<void> {
    await this.#mail('email-changed', from, oldAddressMail(this.#options.accountUrl(), to));
  }

  async #mail(kind: string, to: string, words: { readonly subject: string; readonly text: string }): Promise<void> {
    if (!this.#mayMail(`${kind} ${to}`)) return;
    await this.#options.mailer.send({ to, kind, accountId: null, ...words });
  }

  /** Limits mails, so that nobody can flood another user's mailbox. */
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

/** Whether the provider's metadata could be fetched. */
async function knows(auth: Auth, provider: string): Promise<boolean> {
  const { socialProviders } = await auth.$context;
  return socialProviders.some(({ id }) => id === provider);
}

/** The only answer for a link that was forged, used, withdrawn, or has expired. */
export const deadLink = (): ApiError =>
  new ApiError('http_404', 'This link is invalid or has expired. Ask for a new one.');
