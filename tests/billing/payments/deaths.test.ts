import { deathClaims } from './death-claims.ts';
import { openBooks } from './sqlite-ledger.ts';

deathClaims(openBooks);
