-- Reserve places for jobs that several calls will add, in any order; return the first, and now.
-- ARGV = number of jobs
-- flags: allow-oom
-- requires: begin
return {call('INCRBY', P .. 'ver', 2 * ARGV[1]) - 2 * ARGV[1], now}
