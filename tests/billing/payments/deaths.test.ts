import { deathClaims } from './death-claims.ts';
import { openLedger } from './sqlite-ledger.ts';

deathClaims(openLedger);
