import type { BillingDetails } from '../store/repositories/queries.ts';
import type { Budgeted, BudgetSetting, BudgetInput } from './budget.ts';
import type { CreditLimit, CreditLimited, CreditMove, Moved, RequestRefund } from './credit.ts';
import type { AccountDeleted, AccountDeletion } from './delete-account.ts';
import type { KeyLimits } from './key-limits.ts';
import type { OwnerLink, OwnerLinkInput, OwnerMade, OwnerInput } from './owner.ts';
import type { PersonRelease, PersonReleased } from './release-person.ts';
import type { Role } from './role.ts';

/** Creates an account and, where requested, its owner's invitation, its first credit and its first key. */
export interface NewAccountInput {
  readonly kind: 'create_account';
  readonly name: string;
  /** The address invited to own it. */
  readonly ownerEmail?: string | undefined;
  /** A grant; decimal text, above 0. */
  readonly creditMicrocents?: string | undefined;
  /** Name of its first key. */
  readonly keyName?: string | undefined;
}

export interface AccountMade {
  readonly kind: 'account';
  readonly accountId: string;
  readonly name: string;
  /** The token is stored nowhere. */
  readonly invitation?: { readonly email: string; readonly token: string; readonly expiresAt: number };
  readonly creditMicrocents?: string;
  /** Displayed once and stored nowhere. */
  readonly key?: { readonly keyId: string; readonly key: string };
}

/** The operator's changes, with the service running or without it: the command line's writes. Plain JSON data. */
export type Operation =
  | NewAccountInput
  | {
      readonly kind: 'create_key';
      readonly accountId: string | undefined;
      readonly name: string;
      /** Left out: a legacy key without a user. */
      readonly userId?: string | undefined;
      readonly expiresAt: number | undefined;
      /** Instead: this long after it is made, by the clock of the process that makes it. */
      readonly expiresAfterMs?: number | undefined;
      /** Left out: all that the account may use. */
      readonly models?: readonly string[] | undefined;
      /** Left out: none. */
      readonly limits?: KeyLimits | undefined;
      /** Left out: none. */
      readonly budget?: BudgetInput | undefined;
      /** Labels of all of its requests. */
      readonly tags?: readonly string[] | undefined;
      /** A management key with the rights of this role; left out: an inference key. */
      readonly role?: Role | undefined;
      /** A management key of the operator. */
      readonly isOperator?: boolean | undefined;
    }
  /** Sets the models that a key or an account may use; without `models`, all of them. */
  | { readonly kind: 'allow_key'; readonly keyId: string; readonly models: readonly string[] | undefined }
  | {
      readonly kind: 'allow_account';
      readonly accountId: string | undefined;
      readonly models: readonly string[] | undefined;
    }
  /** Sets the plan of an account; without `plan`, removes it. */
  | { readonly kind: 'plan_account'; readonly accountId: string | undefined; readonly plan: string | undefined }
  /** Sets how many requests of an account may run; left out: the limit of its plan or the configuration. */
  | {
      readonly kind: 'limit_account';
      readonly accountId: string | undefined;
      readonly concurrencyMax: number | undefined;
    }
  /** Changes a key's restrictions; null removes one, and what is left out stays. */
  | {
      readonly kind: 'limit_key';
      readonly keyId: string;
      readonly limits: LimitsChange;
    }
  /** Changes a key's details, all at once; what is left out stays. */
  | {
      readonly kind: 'edit_key';
      readonly keyId: string;
      readonly name?: string | undefined;
      /** Milliseconds since 1970; null: never. */
      readonly expiresAt?: number | null | undefined;
      /** Instead: this long from now on. */
      readonly expiresAfterMs?: number | undefined;
      /** null: all that its account may use. */
      readonly models?: readonly string[] | null | undefined;
      /** null removes a limit. */
      readonly limits?: LimitsChange | undefined;
      readonly tags?: readonly string[] | undefined;
      /** Paused: it admits no request, and its running requests are cut. */
      readonly disabled?: boolean | undefined;
    }
  /** Gives a key another secret; the current one works on for this long. */
  | { readonly kind: 'rotate_key'; readonly keyId: string; readonly overlapMs: number }
  /** Renames an account, or sets its billing details or the zone of its days and months; left out: stays, null: removed. */
  | {
      readonly kind: 'edit_account';
      readonly accountId: string | undefined;
      readonly name?: string | undefined;
      readonly billing?: { readonly [Detail in keyof BillingDetails]?: BillingDetails[Detail] | undefined } | undefined;
      /** IANA name, such as `Europe/Berlin`. */
      readonly timeZone?: string | undefined;
    }
  | BudgetSetting
  /** Prices are microcents per million tokens, as text. */
  | {
      readonly kind: 'set_price';
      readonly accountId: string | undefined;
      readonly model: string;
      readonly input: string;
      readonly output: string;
      /** Left out: the input price. */
      readonly cacheRead: string | undefined;
      /** Left out: from now on. */
      readonly validFrom: number | undefined;
      /** Exclusive; left out: for good. */
      readonly validTo: number | undefined;
    }
  | { readonly kind: 'remove_price'; readonly accountId: string | undefined; readonly model: string }
  | { readonly kind: 'revoke_key'; readonly keyId: string }
  | CreditMove
  | RequestRefund
  | CreditLimit
  | OwnerLinkInput
  | OwnerInput
  | PersonRelease
  | AccountDeletion
  | {
      readonly kind: 'suspend_account' | 'revive_account';
      readonly accountId: string;
      /** For readers of the audit log. */
      readonly reason?: string | undefined;
    };

export type LimitsChange = { readonly [Limit in keyof KeyLimits]?: KeyLimits[Limit] | null };

export type OperationAnswer =
  | AccountMade
  /** `key` is displayed once and stored nowhere. */
  | {
      readonly kind: 'key';
      readonly keyId: string;
      readonly accountId: string;
      readonly name: string;
      readonly key: string;
    }
  | {
      readonly kind: 'allowed';
      /** Id of the key or the account. */
      readonly id: string;
      readonly models: readonly string[] | null;
    }
  | { readonly kind: 'planned'; readonly accountId: string; readonly plan: string | null }
  | { readonly kind: 'account_limited'; readonly accountId: string; readonly concurrencyMax: number | null }
  | { readonly kind: 'key_limited'; readonly keyId: string; readonly limits: KeyLimits }
  | {
      readonly kind: 'key_edited';
      readonly keyId: string;
      readonly name: string;
      readonly expiresAt: number | null;
      readonly disabled: boolean;
    }
  | {
      readonly kind: 'rotated';
      readonly keyId: string;
      readonly accountId: string;
      readonly name: string;
      readonly key: string;
      /** When the earlier secret ends, by the clock of the database; null: it has ended. */
      readonly previousEndsAt: number | null;
    }
  | { readonly kind: 'account_edited'; readonly accountId: string; readonly name: string }
  | Budgeted
  | {
      readonly kind: 'price';
      readonly accountId: string;
      readonly model: string;
      readonly validFrom: number;
      readonly validTo: number | null;
      readonly input: string;
      readonly output: string;
      readonly cacheRead: string;
    }
  | { readonly kind: 'prices_ended'; readonly accountId: string; readonly model: string; readonly ended: number }
  | { readonly kind: 'revoked'; readonly keyId: string; readonly accountId: string; readonly name: string }
  | Moved
  | CreditLimited
  | OwnerLink
  | OwnerMade
  | PersonReleased
  | AccountDeleted
  | { readonly kind: 'status'; readonly accountId: string; readonly status: 'active' | 'suspended' };
