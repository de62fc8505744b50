/** Accounts have multiples of their own for service tiers, with or without prices of their own, and a request keeps the one it was charged at. */
import { sql, type Kysely } from 'kysely';
import type { Database } from '../database.ts';
import type { SchemaDialect } from '../schema/create-schema.ts';

const whole =
  '(input_price is null) = (output_price is null) and (input_price is null) = (cache_read_price is null) and (input_price is not null or tier_multiples is not null)';
const oneModel = "model_id <> '*' or input_price is null";
const columns = '"account_id", "model_id", "valid_from", "valid_to", "input_price", "output_price", "cache_read_price"';

export const tierMultiples = {
  up: async (db: Kysely<Database>, dialect: SchemaDialect): Promise<void> => {
    const statements = dialect === 'sqlite' ? rebuilt : altered;
    for (const statement of statements) await sql.raw(statement).execute(db);
    const integer = dialect === 'sqlite' ? 'integer' : 'bigint';
    await sql.raw(`alter table "usage" add column "price_multiple" ${integer}`).execute(db);
  },
};

const altered = [
  'alter table "account_price" add column "tier_multiples" text',
  ...['input_price', 'output_price', 'cache_read_price'].map(
    (price) => `alter table "account_price" alter column "${price}" drop not null`,
  ),
  `alter table "account_price" add constraint "account_price_whole" check (${whole})`,
  `alter table "account_price" add constraint "account_price_one_model" check (${oneModel})`,
];

/** SQLite cannot drop `not null`. */
const rebuilt = [
  'alter table "account_price" rename to "account_price_before"',
  `create table "account_price" (${[
    '"account_id" text not null references "account" ("id")',
    '"model_id" text not null',
    '"valid_from" integer not null',
    '"valid_to" integer',
    ...['input_price', 'output_price', 'cache_read_price'].map((price) => `"${price}" integer check (${price} >= 0)`),
    '"tier_multiples" text',
    'constraint "account_price_key" primary key ("account_id", "model_id", "valid_from")',
    'constraint "account_price_span" check (valid_to is null or valid_to > valid_from)',
    'constraint "account_price_cached" check (cache_read_price <= input_price)',
    `constraint "account_price_whole" check (${whole})`,
    `constraint "account_price_one_model" check (${oneModel})`,
  ].join(', ')}) strict, without rowid`,
  `insert into "account_price" (${columns}) select ${columns} from "account_price_before"`,
  'drop table "account_price_before"',
];
