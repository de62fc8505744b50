/** A step that the next version might have, on tables that are in use: it takes long where there are many leases. */
import { sql } from 'kysely';

import { steps } from '../../src/store/migrations/migrate.ts';
import type { Step } from '../../src/store/migrations/step.ts';

export const nextStep = '900-leases-made-anew';

const up: Step['up'] = async (db, dialect) => {
  const [bytes, integer, storage] =
    dialect === 'sqlite' ? ['blob', 'integer', 'strict, without rowid'] : ['bytea', 'bigint', 'with (fillfactor = 50)'];
  for (const statement of [
    ...(dialect === 'sqlite' ? [] : ['lock table credit_lease in access exclusive mode']),
    `create table leased_credit (
       replica_id ${bytes} not null,
       account_id text not null,
       remaining ${integer} not null check (remaining >= 0),
       constraint leased_credit_key primary key (replica_id, account_id)
     ) ${storage}`,
    'insert into leased_credit select replica_id, account_id, remaining from credit_lease',
    'drop table credit_lease',
    'alter table leased_credit rename to credit_lease',
    'create index credit_lease_account on credit_lease (account_id)',
    'create table added_by_step (id text)',
  ])
    await sql.raw(statement).execute(db);
};

export const addNextStep = (): void => void (steps[nextStep] = { up });
export const removeNextStep = (): void => void delete steps[nextStep];
