<?php
// Reads a file of jobs with XDMoD's own shredder: php xdmod_shredder.php SOURCE FILE
//
// SOURCE is the folder of XDMoD's source. Only its database and its logger are not there: the rows that
// would be inserted are printed as JSON, with what the shredder found wrong with them.

namespace CCR {
    class Log
    {
        public static function singleton($name)
        {
            return new class {
                public function __call($level, $words)
                {
                    if (in_array($level, ['warning', 'error'])) {
                        fwrite(STDERR, "$words[0]\n");
                    }
                }
            };
        }
    }
}

namespace {
    [, $source, $file] = $argv;
    require "$source/libraries/utilities.php";
    spl_autoload_register(function ($name) use ($source) {
        require "$source/classes/" . str_replace('\\', '/', $name) . '.php';
    });

    class NoDatabase implements CCR\DB\iDatabase
    {
        public function __destruct() {}
        public function connect() {}
        public function disconnect() {}
        public function handle() {}
        public function query($query, array $params = [], $returnStatement = false) { return []; }
        public function execute($query, array $params = []) {}
        public function prepare($query) {}
        public function insert($statement, $params = []) {}
        public function getRowCount($schema, $table) { return 0; }
        public function beginTransaction() {}
        public function commit() {}
        public function rollBack() {}
        public function quote($string) { return $string; }
    }

    class PrintedSlurm extends OpenXdmod\Shredder\Slurm
    {
        public $rows = [];
        protected function insertRow($values) { $this->rows[] = $values; }
        protected function getResourceConfig($name) { return []; }
        public function wrong() { return $this->jobErrors; }
    }

    $shredder = new PrintedSlurm(new NoDatabase());
    $shredder->setResource('star');
    $read = $shredder->shredFile($file);
    echo json_encode(['read' => $read, 'rows' => $shredder->rows, 'wrong' => $shredder->wrong()]);
}
