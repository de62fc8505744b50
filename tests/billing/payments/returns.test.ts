import { returnClaims } from './return-claims.ts';
import { openLedger } from './sqlite-ledger.ts';

returnClaims(openLedger);
