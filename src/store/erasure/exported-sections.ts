import type { Database } from '../database.ts';

/** The rows of a table that belong to an account. */
export interface Section {
  readonly table: keyof Database;
  /** Columns that hold the id of the account. */
  readonly of: readonly string[];
  /** Unique; defines the page order. */
  readonly key: readonly [string, ...string[]];
  /** Secrets, and columns that have no meaning outside. */
  readonly without?: readonly string[];
  /** Rows per page, if rows may be large. */
  readonly page?: number;
}

const ofAccount = ['account_id'] as const;

/** All data of an account, by section, in export order. */
export const exportedSections = {
  account: { table: 'account', of: ['id'], key: ['id'], without: ['kind', 'version'] },
  members: { table: 'member', of: ofAccount, key: ['user_id'] },
  invitations: { table: 'invitation', of: ofAccount, key: ['id'], without: ['token_hash'] },
  keys: { table: 'api_key', of: ofAccount, key: ['id'], without: ['hash', 'previous_hash', 'pepper_id'] },
  prices: { table: 'account_price', of: ofAccount, key: ['model_id', 'valid_from'] },
  payments: { table: 'payment', of: ofAccount, key: ['provider', 'id'] },
  auto_topup: { table: 'auto_topup', of: ofAccount, key: ['account_id'] },
  ledger: { table: 'transfer', of: ['debit_account', 'credit_account'], key: ['at', 'id'] },
  usage: { table: 'usage', of: ofAccount, key: ['ended_at', 'request_id'] },
  errors: { table: 'error_count', of: ofAccount, key: ['minute', 'key_id', 'model_id', 'code'] },
  refused: { table: 'refused_request', of: ofAccount, key: ['request_id'] },
  invoices: { table: 'invoice', of: ofAccount, key: ['id'], page: 50 },
  receipts: { table: 'receipt', of: ofAccount, key: ['id'], page: 50 },
  files: { table: 'file', of: ofAccount, key: ['created_at', 'id'], without: ['replica_id'] },
  batches: { table: 'batch', of: ofAccount, key: ['created_at', 'id'], without: ['owner', 'has_lines'] },
  items: { table: 'kept_item', of: ofAccount, key: ['id'], page: 10 },
  alerts: { table: 'alert', of: ofAccount, key: ['id'] },
  webhooks: { table: 'webhook_endpoint', of: ofAccount, key: ['id'] },
  mail: { table: 'mail', of: ofAccount, key: ['id'] },
  audit: { table: 'audit_log', of: ofAccount, key: ['id'] },
} as const satisfies Readonly<Record<string, Section>>;
export type ExportedSection = keyof typeof exportedSections;
