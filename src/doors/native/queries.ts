/** Values in a query, read strictly. */
import { invalid } from '../../core/index.ts'

export function wholeNumber(field: string, text: string): number {
  if (/^\d{1,15}$/.test(text)) return Number(text)
  throw invalid(field, 'must be a whole number')
}
