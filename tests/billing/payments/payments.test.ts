import { paymentClaims } from './claims.ts';
import { moreClaims } from './more-claims.ts';
import { openBooks } from './sqlite-ledger.ts';

paymentClaims(openBooks);
moreClaims(openBooks);
